#include <fmt/format.h>

#include <algorithm>

#include "base/human.hpp"
#include "ops/checks/check.hpp"
#include "ops/checks/derived.hpp"
#include "ops/text.hpp"
#include "ops/topology/nic_plan.hpp"

namespace ferry::ops {

namespace {

Judgement judge_mesh(const Facts& facts, const DoctorOptions&) {
  const std::vector<GpuFacts> gpus = facts.gpu_list();
  if (gpus.size() < 2) return not_applicable(fmt::format("{} GPUs", gpus.size()));
  std::vector<std::string> apart;
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    if (gpus[a].nvlinks.is_unknown())
      return unknown("the driver was not asked for links (no NVML)", "nvidia-smi topo -m");
    for (std::size_t b = a + 1; b < gpus.size(); ++b)
      if (num_nvlinks(gpus[a], gpus[b]) == 0) apart.push_back(fmt::format("{}-{}", a, b));
  }
  if (apart.empty())
    return ok(
        fmt::format("every pair of {} GPUs, {}", gpus.size(), gpu_link(facts, gpus[0], gpus[1])));
  if (apart.size() > 6) apart.resize(6);
  return fail("no NVLink between GPUs " + join(apart, ", "));
}

Judgement judge_class(const Facts& facts, const DoctorOptions& options) {
  if (!has_gpu(facts)) return not_applicable("no GPU");
  std::string names;
  for (const GpuFacts& gpu : facts.gpu_list()) {
    const std::string name = gpu.name.value_or("");
    names = name;
    if (contains(name, "GeForce") || contains(name, "TITAN"))
      return fail_across_nodes(options, name + ": the driver blocks GPUDirect RDMA");
  }
  if (names.empty()) return unknown("the GPU's name is not known", "nvidia-smi -L");
  return ok(names);
}

int local_ranks(const Facts& facts) {
  for (const char* name :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"})
    if (const auto number = parse_whole(facts.process.variable(name)); number && *number < 4096)
      return static_cast<int>(*number);
  return 0;
}

Judgement judge_sharing(const Facts& facts, const DoctorOptions&) {
  if (!has_gpu(facts)) return not_applicable("no GPU");
  for (const GpuFacts& gpu : facts.gpu_list())
    if (gpu.is_mig.is(true)) return fail(fmt::format("GPU {} is split by MIG", gpu.index));
  const int num_ranks = local_ranks(facts);
  const auto num_gpus = static_cast<int>(facts.gpu_list().size());
  if (num_ranks > num_gpus)
    return fail(fmt::format("{} local ranks on {} GPUs", num_ranks, num_gpus));
  const std::string visible = facts.process.variable("CUDA_VISIBLE_DEVICES");
  return ok(visible.empty() ? fmt::format("{} GPUs visible", num_gpus)
                            : "CUDA_VISIBLE_DEVICES=" + visible);
}

Judgement judge_domain(const Facts& facts, const DoctorOptions&) {
  std::string cluster;
  for (const GpuFacts& gpu : facts.gpu_list())
    if (gpu.fabric_cluster.is_known()) cluster = gpu.fabric_cluster.value();
  if (cluster.empty()) return not_applicable("no NVLink fabric that is known");
  if (cluster.find_first_not_of('0') == std::string::npos)
    return ok("the domain is this host: no fabric handles, no IMEX");
  const auto& nodes = facts.device_nodes;
  const bool has_channel = std::any_of(nodes.begin(), nodes.end(), [](const std::string& node) {
    return node.starts_with("/dev/nvidia-caps-imex-channels/");
  });
  if (has_channel)
    return ok("a domain of several hosts, cluster " + cluster + ", with an IMEX channel");
  return fail("a domain of several hosts, cluster " + cluster +
              ", and no /dev/nvidia-caps-imex-channels/*");
}

Judgement judge_engine(const Facts& facts, const DoctorOptions&) {
  if (!has_gpu(facts)) return ok("no GPU: the CPU engine runs");
  if (!facts.driver.version.is_known())
    return warn("a GPU without a driver: only the CPU engine runs");
  if (!facts.driver.cuda_version.is_known())
    return unknown("the driver does not say which CUDA it serves", "nvidia-smi");
  const std::string seen = fmt::format("driver {} serves CUDA {}", facts.driver.version.value(),
                                       facts.driver.cuda_version.value());
  return is_at_least(facts.driver.cuda_version.value(), "12.8") ? ok(seen) : fail(seen);
}

Judgement judge_memory(const Facts& facts, const DoctorOptions&) {
  const Fact<std::int64_t>& available = facts.host.memory_available_bytes;
  if (!available.is_known()) return unknown(available.reason(), "free -h");
  const std::string seen = human_bytes(available.value()) + " available (/proc/meminfo)";
  return available.value() < (std::int64_t{1} << 30) ? warn(seen) : ok(seen);
}

constexpr Check kChecks[] = {
    {"nvlink.mesh", "NVLink between all GPUs", Stack::kDeepEp,
     "a pair of GPUs without NVLink: fail",
     "DeepEP's high-throughput kernels use NVLink atomics between all GPUs of a host and fail, or "
     "never end, "
     "over PCIe",
     "use low-latency mode, DeepEP V2's direct mode, or FerryEP's CPU engine between such GPUs",
     "M1 M2 M3", judge_mesh},
    {"nvlink.domain", "NVLink domain", Stack::kBoth,
     "GPUs of a domain of several hosts and no IMEX channel: fail",
     "CUDA IPC does not cross hosts ('invalid resource handle'): a domain of several hosts needs "
     "fabric handles, "
     "and these an IMEX channel; on one host they must not be asked for ('operation not "
     "permitted')",
     "start nvidia-imex and give the container /dev/nvidia-caps-imex-channels", "L1 L2 L3",
     judge_domain},
    {"gpu.class", "GPU model", Stack::kBoth, "GeForce or TITAN: warn, across hosts fail",
     "the driver of these cards has no GPUDirect RDMA",
     "use another GPU, or a path over host memory", "C12", judge_class},
    {"gpu.sharing", "one GPU for each rank", Stack::kDeepEp,
     "MIG, or more local ranks than GPUs: fail",
     "'Called NVSHMEM API not supported with limited MPG': NVSHMEM wants a GPU of its own for each "
     "process",
     "start as many ranks as there are GPUs, and set the device before NVSHMEM starts", "Q1 Q2",
     judge_sharing},
    {"ferry.engine", "FerryEP's engine", Stack::kFerry,
     "a GPU whose driver serves no CUDA 12.8: fail",
     "the CUDA engine is built with CUDA 12.8 or newer",
     "update the driver; the CPU engine runs without", "", judge_engine},
    {"ferry.memory", "memory for arenas", Stack::kFerry, "less than 1 GiB available: warn",
     "every rank of the CPU engine keeps its arena in host memory",
     "ferry plan --for ferry --ranks 8", "", judge_memory},
};

}  // namespace

std::span<const Check> machine_checks() { return kChecks; }

}  // namespace ferry::ops
