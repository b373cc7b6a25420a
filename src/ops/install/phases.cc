#include "ops/install/phases.hpp"

namespace ferry::ops {

std::vector<Phase> plan_phases(const HostView& host) {
  if (host.options().stack == "ferry") return phases::ferry_stack(host);
  if (host.options().target == "gke-cos")
    // The node's image brings driver and NIC driver, the Pod's image the toolkit and PyTorch.
    return {phases::build_packages(host), phases::nvshmem(host), phases::deep_ep(host)};
  std::vector<Phase> plan = {phases::cuda_toolkit(host), phases::doca_ofed(host)};
  plan.push_back(host.options().nic_handler == "cpu" ? phases::gdrdrv_module(host)
                                                     : phases::driver_option(host));
  plan.push_back(phases::after_reboot(host, plan));
  for (auto* phase : {phases::build_packages, phases::gdrcopy, phases::nvshmem, phases::pytorch,
                      phases::deep_ep, phases::environment_script})
    plan.push_back(phase(host));
  return plan;
}

}  // namespace ferry::ops
