#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::topo {

// DEEP_EP_DEVICE_TO_HCA_MAPPING: "0:mlx5_0:1,1:mlx5_1:1", a physical CUDA device id and its NIC.
// Everything behind an entry's first colon is the NIC, as it is handed to NVSHMEM. Of an id that
// stands twice the last entry holds. Blanks around an id are ignored, others are part of the name.
// Throws kInvalidArgument naming the entry: no colon (an empty entry included), an id that is no
// whole number.
using HcaMapping = std::map<int, std::string>;
[[nodiscard]] HcaMapping parse_hca_mapping(std::string_view text);
[[nodiscard]] std::string format_hca_mapping(const HcaMapping& mapping);

// The mapping's key of a process whose current CUDA device is `device`: that entry of
// CUDA_VISIBLE_DEVICES where the variable is set, even if it is empty. Throws kInvalidArgument
// where it has no such entry, or one that is not all digits (a UUID, a MIG name, a blank).
[[nodiscard]] int physical_device(int device, const std::optional<std::string>& visible_devices);

// The NIC of one process: physical_device() looked up; kInvalidArgument naming the device if the
// mapping has none.
[[nodiscard]] std::string hca_of_device(const HcaMapping& mapping,
                                        int device,
                                        const std::optional<std::string>& visible_devices);

// A NIC as NVSHMEM lists it: "mlx5_0", "mlx5_0:1" (port), "mlx5_0:1:2" (port and count).
struct HcaPort {
  std::string name{};
  std::optional<int> port{};
  std::optional<int> count{};

  friend bool operator==(const HcaPort&, const HcaPort&) = default;
};
// nullopt where name is empty, or port or count is no positive number, or more follows.
[[nodiscard]] std::optional<HcaPort> parse_hca_port(std::string_view text);

}  // namespace ferry::topo
