// What outputs and readings mean; nothing is run here.

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>

#include "ops/install/host_view.hpp"
#include "ops/text.hpp"
#include "ops/verify/figures.hpp"
#include "ops/verify/verify.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kDoc = "docs/deepep-install.md";

Finding make(std::string id,
             Verdict verdict,
             std::string title,
             std::string seen,
             std::string why,
             std::string fix) {
  return {std::move(id),  verdict, std::move(title), std::move(seen), std::move(why),
          std::move(fix), kDoc};
}

Finding check_hcas(const Facts& facts) {
  const std::string why = "NVSHMEM and the mapping of the guide look for mlx5 names";
  if (!facts.hcas.is_known())
    return make("verify.hcas", Verdict::kUnknown, "RDMA devices", facts.hcas.reason(), why,
                "ls /sys/class/infiniband");
  if (facts.hcas->empty())
    return make("verify.hcas", Verdict::kNotApplicable, "RDMA devices", "none", why, "");
  std::vector<std::string> wrong;
  std::vector<std::string> names;
  for (const HcaFacts& hca : *facts.hcas) {
    names.push_back(hca.name);
    const bool is_active =
        std::any_of(hca.ports.begin(), hca.ports.end(),
                    [](const PortFacts& port) { return port.state.is("ACTIVE"); });
    if (!hca.name.starts_with("mlx5_"))
      wrong.push_back(hca.name + " has another name");
    else if (!is_active)
      wrong.push_back(hca.name + " is not ACTIVE");
  }
  return make("verify.hcas", wrong.empty() ? Verdict::kOk : Verdict::kFail, "RDMA devices",
              wrong.empty() ? join(names, " ") : join(wrong, ", "), why,
              "ferry doctor --multi-node");
}

Finding check_driver_option(const Facts& facts) {
  const Fact<std::string>& running = facts.driver.running_registry_dwords;
  const std::string why = "IBGDA's GPU handler maps the NIC's doorbell into the GPU";
  if (facts.driver.version.is_absent())
    return make("verify.driver-option", Verdict::kNotApplicable,
                "driver option PeerMappingOverride", "no NVIDIA driver", why, "");
  if (!running.is_known())
    return make("verify.driver-option", Verdict::kUnknown, "driver option PeerMappingOverride",
                running.reason(), why, "grep RegistryDwords /proc/driver/nvidia/params");
  const bool is_set = HostView::sets_peer_mapping(*running);
  return make("verify.driver-option", is_set ? Verdict::kOk : Verdict::kWarn,
              "driver option PeerMappingOverride", "RegistryDwords: '" + *running + "'", why,
              "ferry install --only driver-option");
}

Finding check_mapping_symbol(const Facts& facts) {
  const std::string why = "without PR #466 two GPUs below one switch share a NIC";
  if (facts.software.checkouts.empty())
    return make("verify.mapping", Verdict::kUnknown, "DeepEP's GPU-NIC mapping (PR #466)",
                "no DeepEP tree was found", why,
                "grep _setup_device_hca_mapping deep_ep/buffer.py, in DeepEP's tree");
  std::vector<std::string> without;
  for (const CheckoutFacts& tree : facts.software.checkouts)
    if (!tree.has_hca_mapping.value_or(false)) without.push_back(tree.path);
  return make("verify.mapping", without.empty() ? Verdict::kOk : Verdict::kFail,
              "DeepEP's GPU-NIC mapping (PR #466)",
              without.empty() ? "in every tree" : "not in " + join(without, ", "), why,
              "ferry install --only deepep");
}

bool is_b200(const Facts& facts) {
  const auto gpus = facts.gpu_list();
  return !gpus.empty() && std::all_of(gpus.begin(), gpus.end(), [](const GpuFacts& gpu) {
    return contains(gpu.name.value_or(""), "B200");
  });
}

std::string hardware(const Facts& facts) {
  const auto gpus = facts.gpu_list();
  return gpus.empty() ? "no GPU"
                      : fmt::format("{} x {}", gpus.size(), gpus.front().name.value_or("GPU"));
}

std::map<std::string, std::int64_t> sent_bytes(const Facts& facts) {
  std::map<std::string, std::int64_t> sent;
  for (const HcaFacts& hca : facts.hca_list())
    for (const PortFacts& port : hca.ports) {
      const auto counter = port.counters.find("port_xmit_data");
      if (counter != port.counters.end()) sent[hca.name] += counter->second * 4;  // 4-byte words
    }
  return sent;
}

}  // namespace

std::vector<Finding> check_installed(const Facts& facts) {
  return {check_hcas(facts), check_driver_option(facts), check_mapping_symbol(facts)};
}

std::vector<Finding> judge_figures(const std::string& output, int nodes, const Facts& facts) {
  std::vector<Finding> findings;
  for (const Figure& figure : parse_figures(output)) {
    const auto published = published_figure(nodes, figure);
    std::string seen = fmt::format("{:.1f} GB/s", figure.gbytes);
    Verdict verdict = Verdict::kOk;
    if (published) {
      seen += fmt::format("; published on 8 x B200, {} node{}: {:.0f}-{:.0f}", nodes,
                          nodes > 1 ? "s" : "", published->least, published->most);
      if (published->on_gke > 0) seen += fmt::format(", on GKE {:.1f}", published->on_gke);
      if (!is_b200(facts))
        seen += "; this is " + hardware(facts) + ", so the two do not compare";
      else if (figure.gbytes < 0.8 * published->least)
        verdict = Verdict::kWarn;
    }
    std::string id =
        fmt::format("verify.figures.{}.{}", lower(figure.operation), lower(figure.link));
    std::replace(id.begin(), id.end(), ' ', '-');
    findings.push_back(make(std::move(id), verdict, figure.operation + " over " + figure.link, seen,
                            "more than a fifth below what such machines reached",
                            "ferry doctor --multi-node"));
  }
  if (findings.empty())
    findings.push_back(make("verify.figures", Verdict::kFail, "figures of DeepEP's test",
                            "none in its output", "the test did not get as far as its tuning",
                            "ferry diagnose, with that output"));
  return findings;
}

Finding judge_counters(const Facts& before, const Facts& after) {
  const auto from = sent_bytes(before);
  std::vector<std::string> still;
  std::vector<std::string> moved;
  for (const auto& [name, bytes] : sent_bytes(after)) {
    const auto earlier = from.find(name);
    const std::int64_t sent = bytes - (earlier == from.end() ? 0 : earlier->second);
    (sent > 0 ? moved : still).push_back(name);
  }
  if (moved.empty() && still.empty())
    return make("verify.counters", Verdict::kNotApplicable, "NIC counters", "no RDMA device", "",
                "");
  return make("verify.counters", still.empty() ? Verdict::kOk : Verdict::kFail, "NIC counters",
              still.empty() ? "all moved: " + join(moved, " ")
                            : "moved: " + (moved.empty() ? std::string("none") : join(moved, " ")) +
                                  "; still: " + join(still, " "),
              "every GPU has a NIC of its own only if every NIC sends",
              "DEEP_EP_DEVICE_TO_HCA_MAPPING as `ferry topo` prints it");
}

Finding judge_nvshmem_info(const std::string& output) {
  static const RE2 kOn(R"((?i)IBGDA\w*[ =:]+(?:ON|1|yes|true)\b)");
  static const RE2 kOff(R"((?i)IBGDA\w*[ =:]+(?:OFF|0|no|false)\b)");
  const std::string why = "without IBGDA nothing arrives between nodes (known problem 8)";
  const bool is_off = RE2::PartialMatch(output, kOff) && !RE2::PartialMatch(output, kOn);
  const Verdict verdict = RE2::PartialMatch(output, kOn) ? Verdict::kOk
                          : is_off                       ? Verdict::kFail
                                                         : Verdict::kUnknown;
  return make("verify.ibgda", verdict, "IBGDA in NVSHMEM",
              verdict == Verdict::kOk ? "compiled in"
              : is_off                ? "compiled without it"
                                      : "nvshmem-info does not say",
              why, "ferry install --only nvshmem");
}

}  // namespace ferry::ops
