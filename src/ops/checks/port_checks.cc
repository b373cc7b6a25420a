#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"
#include "ops/topology/nic_plan.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kNoHca = "no RDMA device";
constexpr std::int64_t kFullMtu = 4200;  // of the netdev, for an RDMA MTU of 4096

Judgement judge_present(const Facts& facts, const DoctorOptions& options) {
  if (facts.hcas.is_unknown())
    return unknown("/sys/class/infiniband: " + facts.hcas.reason(), "ls /sys/class/infiniband");
  if (has_hca(facts)) return ok(fmt::format("{} RDMA devices", facts.hca_list().size()));
  if (options.is_multi_node) return fail("/sys/class/infiniband has none");
  return not_applicable("none, and one host needs none");
}

Judgement judge_driver(const Facts& facts, const DoctorOptions&) {
  if (!has_hca(facts)) return not_applicable(kNoHca);
  std::vector<std::string> others;
  bool is_all_efa = true;
  for (const HcaFacts& hca : facts.hca_list()) {
    if (!hca.driver.is_known())
      return unknown(hca.name + ": its driver is not readable",
                     "readlink /sys/class/infiniband/*/device/driver");
    if (hca.driver.value() == "mlx5_core") continue;
    others.push_back(hca.name + " (" + hca.driver.value() + ")");
    is_all_efa = is_all_efa && hca.driver.value() == "efa";
  }
  if (others.empty()) return ok("all of mlx5_core");
  const std::string seen = "not of mlx5_core: " + join(others, ", ");
  if (others.size() < facts.hca_list().size()) return warn(seen);
  if (is_all_efa)
    return warn(seen,
                "use DeepEP V2 over NCCL's GIN with EFA (see efa.stack), or another library "
                "that is built for EFA");
  return fail(seen);
}

Judgement judge_names(const Facts& facts, const DoctorOptions&) {
  if (!has_mlx5(facts)) return not_applicable("no mlx5 device");
  std::string prefix = facts.process.variable("NVSHMEM_HCA_PREFIX");
  const bool is_set = !prefix.empty();
  if (!is_set) prefix = "mlx5";
  std::vector<std::string> others;
  for (const HcaFacts& hca : facts.hca_list())
    if (hca.driver.is("mlx5_core") && !hca.name.starts_with(prefix)) others.push_back(hca.name);
  const LibraryFacts* nvshmem = effective_nvshmem(facts);
  if (others.empty()) {
    if (is_set && prefix != "mlx5" && nvshmem != nullptr && nvshmem->version.is_known() &&
        !is_at_least(nvshmem->version.value(), "3.4.5"))
      return fail(fmt::format("NVSHMEM_HCA_PREFIX={} is not read by NVSHMEM {}", prefix,
                              nvshmem->version.value()),
                  "use NVSHMEM 3.4.5 or newer, or rename the devices with DOCA-OFED");
    return ok(fmt::format("all begin with '{}'", prefix));
  }
  const bool has_doca =
      facts.software.packages.is_known() && facts.software.packages->contains("doca-ofed");
  return fail(fmt::format("{} do not begin with '{}'{}", join(others, ", "), prefix,
                          has_doca ? "; doca-ofed is installed" : ""),
              has_doca ? "reboot: doca-ofed renames the devices when its driver loads" : "");
}

Judgement judge_health(const Facts& facts, const DoctorOptions&) {
  if (!has_hca(facts)) return not_applicable(kNoHca);
  const std::vector<std::string> named = hcas_named_by_environment(facts);
  std::vector<std::string> down;
  std::vector<std::string> named_down;
  std::size_t num_up = 0;
  for (const HcaFacts& hca : facts.hca_list()) {
    for (const PortFacts& port : hca.ports) {
      if (!port.state.is_known())
        return unknown(hca.name + ": the state of its port is not readable", "ibv_devinfo");
      const bool is_up =
          port.state.value() == "ACTIVE" && port.phys_state.value_or("LinkUp") == "LinkUp";
      if (is_up) {
        ++num_up;
        continue;
      }
      const std::string text = fmt::format("{} port {} is {}/{}", hca.name, port.number,
                                           port.state.value(), port.phys_state.value_or("?"));
      down.push_back(text);
      if (std::find(named.begin(), named.end(), hca.name) != named.end())
        named_down.push_back(text);
    }
  }
  if (!named_down.empty()) return fail(join(named_down, ", ") + ", and the environment selects it");
  if (num_up == 0) return fail("no port is up: " + join(down, ", "));
  if (!down.empty()) return warn(join(down, ", "));
  return ok(fmt::format("{} ports ACTIVE", num_up));
}

Judgement judge_mixed(const Facts& facts, const DoctorOptions& options) {
  const std::vector<HcaFacts> hcas = facts.hca_list();
  const std::vector<ActivePort> ports = active_ports(hcas);
  if (ports.empty()) return not_applicable("no port is up");
  const std::vector<std::string> named = hcas_named_by_environment(facts);
  std::set<std::string> kinds;
  for (const auto& [hca, port] : ports) {
    if (!named.empty() && std::find(named.begin(), named.end(), hca->name) == named.end()) continue;
    kinds.insert(
        fmt::format("{:g} Gb/s {}", port->rate_gbps.value_or(0), port->link_layer.value_or("?")));
  }
  const std::string all = join({kinds.begin(), kinds.end()}, " and ");
  if (kinds.size() <= 1) return ok(all.empty() ? "the selected devices are not up" : all);
  if (!named.empty()) return fail("the devices that the environment selects differ: " + all);
  return fail_across_nodes(options, "no list selects devices, and those that are up differ: " + all,
                           fmt::format("export DEEP_EP_DEVICE_TO_HCA_MAPPING={} (from ferry topo)",
                                       deep_ep_mapping(plan_nics(facts))));
}

// What a fixed GID index of the environment points at, on one port.
std::string fault_of_index(const HcaFacts& hca, const PortFacts& port, int index) {
  for (const Gid& gid : port.gids) {
    if (gid.index != index) continue;
    if (is_link_local(gid)) return fmt::format("{}: entry {} is link-local", hca.name, index);
    if (gid.type != "RoCE v2") return fmt::format("{}: entry {} is {}", hca.name, index, gid.type);
    return "";
  }
  return fmt::format("{}: entry {} is empty", hca.name, index);
}

Judgement judge_gid(const Facts& facts, const DoctorOptions&) {
  const std::vector<HcaFacts> hcas = facts.hca_list();
  std::set<int> indices;
  std::vector<std::string> faults;
  std::vector<std::string> without;
  for (const auto& [hca, port] : active_ports(hcas)) {
    if (!is_ethernet(*port)) continue;
    const Gid* gid = routable_gid(*port);
    if (gid == nullptr) {
      without.push_back(hca->name);
      continue;
    }
    indices.insert(gid->index);
    for (const char* name : {"NVSHMEM_IB_GID_INDEX", "NCCL_IB_GID_INDEX"}) {
      const auto index = parse_whole(facts.process.variable(name));
      if (!index || *index < 0 || *index > 65535) continue;
      const std::string fault = fault_of_index(*hca, *port, static_cast<int>(*index));
      if (!fault.empty()) faults.push_back(fmt::format("{}={}: {}", name, *index, fault));
    }
  }
  if (indices.empty() && without.empty()) return not_applicable("no RoCE port is up");
  if (!without.empty())
    return fail("no routable RoCE v2 address on " + join(without, ", "),
                "give the devices' network interfaces IP addresses");
  const int first = *indices.begin();
  if (!faults.empty())
    return fail(join(faults, "; "),
                fmt::format("export NVSHMEM_IB_GID_INDEX={0} NCCL_IB_GID_INDEX={0}", first));
  if (indices.size() > 1) {
    std::vector<std::string> texts;
    for (const int index : indices) texts.push_back(std::to_string(index));
    return warn("the routable RoCE v2 entry differs between devices: " + join(texts, ", "));
  }
  return ok(fmt::format("the routable RoCE v2 address is entry {} of every device", first));
}

Judgement judge_mtu(const Facts& facts, const DoctorOptions&) {
  const std::vector<HcaFacts> hcas = facts.hca_list();
  std::vector<std::string> small;
  bool has_roce = false;
  for (const auto& [hca, port] : active_ports(hcas)) {
    if (!is_ethernet(*port)) continue;
    has_roce = true;
    if (hca->netdev_mtu.is_known() && hca->netdev_mtu.value() < kFullMtu)
      small.push_back(fmt::format("{} ({}) has MTU {}", hca->name, join(hca->netdevs, ","),
                                  hca->netdev_mtu.value()));
  }
  if (!has_roce) return not_applicable("no RoCE port is up");
  if (small.empty()) return ok("all can carry an RDMA MTU of 4096");
  const bool is_gdaki = facts.process.variable("NCCL_GIN_TYPE") == "3";
  const std::string seen = join(small, ", ");
  return is_gdaki ? fail(seen + "; NCCL_GIN_TYPE=3 asks for GDAKI, which assumes 4096")
                  : warn(seen);
}

Judgement judge_traffic_class(const Facts& facts, const DoctorOptions&) {
  const std::vector<HcaFacts> hcas = facts.hca_list();
  const std::string wanted = facts.process.variable("NVSHMEM_IB_TRAFFIC_CLASS");
  std::string host_class;
  bool has_infiniband = false;
  bool has_port = false;
  for (const auto& [hca, port] : active_ports(hcas)) {
    has_port = true;
    has_infiniband = has_infiniband || port->link_layer.is("InfiniBand");
    if (is_ethernet(*port) && port->traffic_class.is_known() && port->traffic_class.value() != 0)
      host_class = fmt::format("{} has traffic class {}", hca->name, port->traffic_class.value());
  }
  if (!has_port) return not_applicable("no port is up");
  if (has_infiniband && !wanted.empty())
    return fail(fmt::format("NVSHMEM_IB_TRAFFIC_CLASS={} on native InfiniBand", wanted));
  if (!host_class.empty() && wanted.empty())
    return warn(
        host_class + ", NVSHMEM_IB_TRAFFIC_CLASS is unset: IBGDA's queue pairs do not take it over",
        "export NVSHMEM_IB_TRAFFIC_CLASS with that value");
  return ok(wanted.empty() ? "none is set" : "NVSHMEM_IB_TRAFFIC_CLASS=" + wanted + " on RoCE");
}

Judgement judge_virtual(const Facts& facts, const DoctorOptions&) {
  if (!has_hca(facts)) return not_applicable(kNoHca);
  std::vector<std::string> names;
  for (const HcaFacts& hca : facts.hca_list())
    if (hca.is_virtual.is(true)) names.push_back(hca.name);
  if (names.empty()) return ok("no virtual function");
  return warn("virtual functions: " + join(names, ", "));
}

Judgement judge_fused(const Facts& facts, const DoctorOptions&) {
  if (!has_hca(facts)) return not_applicable(kNoHca);
  std::vector<std::string> fused;
  std::map<std::string, std::vector<std::string>> by_device;  // PCI address without its function
  for (const HcaFacts& hca : facts.hca_list()) {
    if (contains(hca.name, "bond")) fused.push_back(hca.name);
    if (hca.pci.is_known() && !hca.is_virtual.is(true))
      by_device[hca.pci->substr(0, hca.pci->rfind('.'))].push_back(hca.name);
  }
  for (const auto& [device, names] : by_device)
    if (names.size() > 1) fused.push_back(join(names, "+"));
  if (fused.empty()) return ok("one port per device");
  std::string seen = "bonded or two-port devices: " + join(fused, ", ");
  if (facts.process.variable("NCCL_CROSS_NIC") == "0") seen += "; NCCL_CROSS_NIC=0 is set as well";
  if (facts.process.variable("NCCL_IB_MERGE_NICS") == "0")
    return ok(seen + "; NCCL_IB_MERGE_NICS=0");
  return warn(seen);
}

constexpr Check kChecks[] = {
    {"hca.present", "RDMA devices", Stack::kBoth, "none, and the job spans hosts: fail",
     "traffic between hosts needs a device that NICs and GPUs share",
     "ls /sys/class/infiniband; load the NIC's driver (mlx5_ib)", "D12", judge_present},
    {"hca.driver", "RDMA devices' driver", Stack::kDeepEp,
     "every device of another driver than mlx5_core: fail (EFA: warn); some: warn",
     "IBGDA writes the work queues of mlx5 NICs itself and knows no other; 'Unable to dlopen "
     "libmlx5dv'",
     "use a path over NCCL or a proxy: DeepEP V2, or NVSHMEM_REMOTE_TRANSPORT=ibrc", "D12",
     judge_driver},
    {"hca.names", "RDMA devices' names", Stack::kDeepEp,
     "mlx5 devices against NVSHMEM_HCA_PREFIX (mlx5 when unset)",
     "NVSHMEM takes only devices whose name begins with its prefix (problem 1 of the guide)",
     "ferry install --stack deepep --target bare-metal --only doca-ofed and reboot; or, from "
     "NVSHMEM "
     "3.4.5 on, export NVSHMEM_HCA_PREFIX=rocep",
     "S1", judge_names},
    {"port.health", "RDMA ports", Stack::kBoth,
     "a port that the environment selects is not ACTIVE/LinkUp, or none is: fail; another: warn",
     "a queue pair on a port that is down does not connect", "ibv_devinfo; check cable and switch",
     "D4 D23", judge_health},
    {"port.mixed", "RDMA ports of one kind", Stack::kBoth,
     "selected ports of several link layers or rates: fail; no selection and such ports: warn, "
     "across "
     "hosts fail",
     "a list that mixes InfiniBand and RoCE, or a storage NIC, fails at two nodes or runs at the "
     "slowest rate",
     "select the ports: ferry topo", "D4 D23", judge_mixed},
    {"roce.gid", "RoCE address entries", Stack::kBoth,
     "the lowest routable RoCE v2 entry of each port against NVSHMEM_IB_GID_INDEX and "
     "NCCL_IB_GID_INDEX: link-local, v1 or empty is fail; different between ports: warn",
     "a link-local or v1 address does not cross a router: 'ibv_modify_qp timed out'",
     "leave the index unset, or give every device its addresses in the same order", "D5 D6",
     judge_gid},
    {"roce.mtu", "MTU of RoCE interfaces", Stack::kBoth,
     "below 4200: warn; with NCCL's GDAKI: fail",
     "an MTU of 1500 gives an RDMA MTU of 1024, and GDAKI kernels that assume 4096 hang",
     "ip link set dev NETDEV mtu 9000, on the switches as well", "D14", judge_mtu},
    {"ib.traffic-class", "traffic class", Stack::kDeepEp,
     "NVSHMEM_IB_TRAFFIC_CLASS on native InfiniBand: fail; a host traffic class on RoCE and the "
     "variable unset: warn",
     "on InfiniBand the value breaks the connection ('INIT2RTR_QP with syndrome 764216'); on RoCE "
     "IBGDA ignores the host's default",
     "unset NVSHMEM_IB_TRAFFIC_CLASS; on InfiniBand use NVSHMEM_IB_SL", "D8 D9 D18",
     judge_traffic_class},
    {"hca.virtual", "virtual functions", Stack::kDeepEp, "any: warn",
     "IBGDA on virtual functions is not settled; hangs after start-up were reported",
     "use physical functions, or NVSHMEM_REMOTE_TRANSPORT=ibrc", "D21", judge_virtual},
    {"hca.fused", "bonded and two-port devices", Stack::kDeepEp,
     "bonds, or two functions of one card, without NCCL_IB_MERGE_NICS=0: warn",
     "NCCL fuses the ports, and several versions then disable GIN; bonds hash all traffic to one "
     "link",
     "export NCCL_IB_MERGE_NICS=0", "D10 D13 D20", judge_fused},
};

}  // namespace

std::span<const Check> port_checks() { return kChecks; }

}  // namespace ferry::ops
