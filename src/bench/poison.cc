#include "bench/poison.hpp"

#include <cstddef>

#include "bench/host_views.hpp"

namespace ferry::bench {

namespace {

constexpr unsigned char kPoison = 0xA5;

// The first rows of every expert, as many as hold tokens.
void poison_experts(BenchDevice& device, const DeliverySnapshot& delivery) {
  HostViews views(device);
  const TensorView counts = views.read(delivery.expert_counts);
  const std::int64_t num_experts = counts.num_elements();
  const std::int64_t rows_of_expert = delivery.tokens.shape[1];
  for (const TensorView& tensor : row_tensors(delivery)) {
    if (!tensor.is_given()) continue;
    const std::int64_t expert_bytes = num_experts > 0 ? tensor_bytes(tensor) / num_experts : 0;
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      const std::int64_t count = static_cast<const std::int64_t*>(counts.data)[expert];
      device.fill(static_cast<std::byte*>(tensor.data) + expert * expert_bytes, kPoison,
                  count * (expert_bytes / rows_of_expert));
    }
  }
}

}  // namespace

void poison(BenchDevice& device, const TensorView& tensor) {
  device.fill(tensor.data, kPoison, tensor_bytes(tensor));
  device.synchronize();
}

void poison(BenchDevice& device, Layout layout, const DeliverySnapshot& delivery) {
  if (layout == Layout::kPadded) {
    poison_experts(device, delivery);
  } else {
    for (const TensorView& tensor : row_tensors(delivery))
      if (tensor.is_given()) device.fill(tensor.data, kPoison, tensor_bytes(tensor));
  }
  device.synchronize();
}

}  // namespace ferry::bench
