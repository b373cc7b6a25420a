#pragma once

#include <vector>

#include "ops/install/host_view.hpp"
#include "ops/install/phase.hpp"

namespace ferry::ops {

// Every phase of a stack on a target, in order, judged against the host. Pure: reads, runs nothing.
[[nodiscard]] std::vector<Phase> plan_phases(const HostView& host);

// Their parts, by what they change.
namespace phases {
[[nodiscard]] Phase cuda_toolkit(const HostView& host);
[[nodiscard]] Phase doca_ofed(const HostView& host);
[[nodiscard]] Phase driver_option(const HostView& host);
[[nodiscard]] Phase gdrdrv_module(const HostView& host);  // in its place with the CPU's NIC handler
[[nodiscard]] Phase after_reboot(const HostView& host, const std::vector<Phase>& before);
[[nodiscard]] Phase build_packages(const HostView& host);
[[nodiscard]] Phase gdrcopy(const HostView& host);
[[nodiscard]] Phase nvshmem(const HostView& host);
[[nodiscard]] Phase pytorch(const HostView& host);
[[nodiscard]] Phase deep_ep(const HostView& host);
[[nodiscard]] Phase environment_script(const HostView& host);
[[nodiscard]] std::vector<Phase> ferry_stack(const HostView& host);
}  // namespace phases

}  // namespace ferry::ops
