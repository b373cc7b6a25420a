#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/bench_device.hpp"
#include "bench/delivery_snapshot.hpp"
#include "bench/host_buffer.hpp"

namespace ferry::bench {

// Tensors of a device where the host can read and write them: themselves on the CPU, which costs
// nothing, else copies that live as long as this. The same tensor has the same copy every time.
class HostViews {
 public:
  explicit HostViews(BenchDevice& device) : device_(device) {}
  HostViews(const HostViews&) = delete;
  HostViews& operator=(const HostViews&) = delete;

  // With the tensor's contents. Dense tensors; what is not given stays so.
  [[nodiscard]] TensorView read(const TensorView& tensor);
  [[nodiscard]] DeliverySnapshot read(const DeliverySnapshot& delivery);
  // To be written: contents are undefined where there is no copy yet.
  [[nodiscard]] TensorView open(const TensorView& tensor);
  // Gives the tensor what its copy holds.
  void write_back(const TensorView& tensor);

 private:
  struct Copy {
    explicit Copy(const TensorView& tensor);
    const void* original;
    HostBuffer memory;
  };
  [[nodiscard]] Copy* find(const TensorView& tensor);

  BenchDevice& device_;
  std::vector<std::unique_ptr<Copy>> copies_;
};

[[nodiscard]] std::int64_t tensor_bytes(const TensorView& tensor);

}  // namespace ferry::bench
