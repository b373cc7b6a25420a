#pragma once

#include <memory>

#include "cuda/plugin.hpp"

namespace ferry::cuda {

[[nodiscard]] int num_devices();
[[nodiscard]] std::unique_ptr<DeviceTools> open_device_tools(int index);

}  // namespace ferry::cuda
