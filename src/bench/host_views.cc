#include "bench/host_views.hpp"

#include "base/error.hpp"

namespace ferry::bench {

namespace {

bool is_on_host(const TensorView& tensor) { return tensor.device.kind == DeviceKind::kCpu; }

TensorView view_of(const TensorView& tensor, void* memory) {
  TensorView view = tensor;
  view.data = memory;
  view.device = Device::cpu();
  return view;
}

}  // namespace

HostViews::Copy::Copy(const TensorView& tensor)
    : original(tensor.data), memory(tensor_bytes(tensor)) {}

HostViews::Copy* HostViews::find(const TensorView& tensor) {
  for (const auto& copy : copies_)
    if (copy->original == tensor.data && copy->memory.bytes() >= tensor_bytes(tensor))
      return copy.get();
  return nullptr;
}

TensorView HostViews::read(const TensorView& tensor) {
  if (!tensor.is_given() || is_on_host(tensor)) return tensor;
  if (Copy* known = find(tensor)) return view_of(tensor, known->memory.base());
  const TensorView view = open(tensor);
  device_.copy(view.data, tensor.data, tensor_bytes(tensor));
  return view;
}

DeliverySnapshot HostViews::read(const DeliverySnapshot& delivery) {
  DeliverySnapshot seen;
  seen.tokens = read(delivery.tokens);
  seen.scales = read(delivery.scales);
  seen.topk_idx = read(delivery.topk_idx);
  seen.topk_weights = read(delivery.topk_weights);
  seen.row_source = read(delivery.row_source);
  seen.row_expert = read(delivery.row_expert);
  seen.num_rows = read(delivery.num_rows);
  seen.expert_counts = read(delivery.expert_counts);
  seen.expert_offsets = read(delivery.expert_offsets);
  seen.source_offsets = read(delivery.source_offsets);
  return seen;
}

TensorView HostViews::open(const TensorView& tensor) {
  if (!tensor.is_given() || is_on_host(tensor)) return tensor;
  if (Copy* known = find(tensor)) return view_of(tensor, known->memory.base());
  FERRY_CHECK_INTERNAL(tensor.is_dense(), "a tensor that the bench copies has gaps");
  copies_.push_back(std::make_unique<Copy>(tensor));
  return view_of(tensor, copies_.back()->memory.base());
}

void HostViews::write_back(const TensorView& tensor) {
  if (const Copy* known = find(tensor))
    device_.copy(tensor.data, known->memory.base(), tensor_bytes(tensor));
}

std::int64_t tensor_bytes(const TensorView& tensor) {
  return tensor.num_elements() * static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
}

}  // namespace ferry::bench
