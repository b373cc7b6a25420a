#pragma once

#include <optional>
#include <string>

#include "ops/diagnose/evidence.hpp"
#include "ops/facts/facts.hpp"

namespace ferry::ops {

// What is known about the run besides its errors: from the logs, and from the facts of a host where
// they are given. An empty string or nullopt: neither says it.
class Clues {
 public:
  // Both are borrowed and must outlive this; `facts` may be null.
  Clues(const Evidence& evidence, const Facts* facts) : evidence_(evidence), facts_(facts) {}

  [[nodiscard]] const Evidence& evidence() const noexcept { return evidence_; }
  [[nodiscard]] const Sighting* find(Signal signal) const { return evidence_.find(signal); }
  [[nodiscard]] bool has(Signal signal) const { return find(signal) != nullptr; }

  // A variable's value, as the log prints it, else as the facts have it.
  [[nodiscard]] std::string setting(const std::string& name) const;
  [[nodiscard]] bool has_setting(const std::string& name) const;

  [[nodiscard]] std::string nvshmem_version() const;  // of the host library
  [[nodiscard]] std::string link_layer() const;       // "InfiniBand", "Ethernet", "mixed"
  [[nodiscard]] bool has_only_mlx5() const;           // every RDMA device is known to be mlx5
  [[nodiscard]] bool has_other_nics() const;          // one is known not to be
  [[nodiscard]] bool has_peermem() const;             // known to be loaded
  [[nodiscard]] bool lacks_peermem() const;           // known not to be loaded
  [[nodiscard]] bool has_cpu_handler() const;
  [[nodiscard]] bool lacks_qp_fix() const;  // a checkout is known not to have commit 29d31c0
  [[nodiscard]] bool has_qp_fix() const;    // every checkout is known to have it
  [[nodiscard]] bool links_wheel_without_ibgda() const;
  [[nodiscard]] bool lacks_nvlink() const;  // PCIe cards by name, or GPUs without an active link
  [[nodiscard]] std::optional<double> nic_gbytes() const;  // GB/s of one NIC
  [[nodiscard]] std::optional<long long> world_size() const;
  [[nodiscard]] std::optional<long long> gpus_per_host() const;
  [[nodiscard]] std::optional<long long> num_hosts() const;

 private:
  const Evidence& evidence_;
  const Facts* facts_;
};

}  // namespace ferry::ops
