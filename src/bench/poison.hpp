#pragma once

#include "bench/bench_device.hpp"
#include "bench/delivery_snapshot.hpp"
#include "ferry/exchange.hpp"

namespace ferry::bench {

// Overwrite what an operation left, so that nothing of it can pass for the result of a later one.
// Done on return.
void poison(BenchDevice& device, const TensorView& tensor);
// In kPadded only the rows that hold tokens: the others' pages are better left untouched.
void poison(BenchDevice& device, Layout layout, const DeliverySnapshot& delivery);

}  // namespace ferry::bench
