#pragma once

#include "ferry/ferry.h"
#include "ferry/tensor.hpp"

namespace ferry::capi {

// `name` is the argument or field, for messages. NULL is "not given". Throws kInvalidArgument for
// what a TensorView cannot hold; whether the tensor fits the operation is the operation's to judge.
[[nodiscard]] TensorView to_view(const char* name, const ferry_tensor* tensor);

// Throws kInvalidArgument where *out has no legal size; what is written is a full tensor.
void write_tensor(const TensorView& view, ferry_tensor* out);

}  // namespace ferry::capi
