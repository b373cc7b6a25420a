#include "ops/diagnose/timeout_rules.hpp"

#include <fmt/format.h>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr double kCompileWindow_s = 200;  // DeepEP waits 100 s, and compilers may have begun before

// The first line that says that somebody waited too long.
const Event& first_timeout(const Clues& clues) {
  const Event* first = nullptr;
  for (const Signal signal : {Signal::kDispatchTimeout, Signal::kKernelTimeout,
                              Signal::kMetaTimeout, Signal::kCounterMissing})
    if (const Sighting* sighting = clues.find(signal))
      if (first == nullptr || is_earlier(*sighting->first, *first)) first = &*sighting->first;
  return *first;
}

bool was_compiling(const Clues& clues) {
  const Sighting* compiling = clues.find(Signal::kJit);
  if (compiling == nullptr) return false;
  const Event& timeout = first_timeout(clues);
  const Event& first = *compiling->first;
  const Event& last = *compiling->last;
  if (!first.time_s || !last.time_s || !timeout.time_s) return first.order < timeout.order;
  return *first.time_s <= *timeout.time_s && *timeout.time_s - *last.time_s <= kCompileWindow_s;
}

// How many of the ranks have waited in vain: all of them, some, or it is not known.
enum class Reach { kAll, kSome, kNotKnown };

Reach reach_of(const Clues& clues) {
  if (clues.has(Signal::kCounterPresent) && clues.has(Signal::kCounterMissing)) return Reach::kSome;
  std::set<int> waiting;
  for (const Signal signal :
       {Signal::kDispatchTimeout, Signal::kKernelTimeout, Signal::kCounterMissing})
    if (const Sighting* sighting = clues.find(signal))
      waiting.insert(sighting->ranks.begin(), sighting->ranks.end());
  const auto size = clues.world_size();
  const auto known = size ? static_cast<std::size_t>(*size) : clues.evidence().ranks().size();
  if (waiting.empty() || known < 2) return Reach::kNotKnown;
  return waiting.size() >= known ? Reach::kAll : Reach::kSome;
}

bool is_qp_field_version(const Clues& clues) {
  const std::string version = clues.nvshmem_version();
  return !version.empty() && is_at_least(version, "3.5") && !clues.has_qp_fix();
}

void add_evident(const Clues& clues, Reach reach, std::vector<Hypothesis>& found) {
  const auto add = [&](const char* cause, Likelihood likelihood, std::string because,
                       const char* decides) {
    found.push_back({cause, likelihood, std::move(because), decides});
  };
  if (was_compiling(clues))
    add("hang.compile-skew", Likelihood::kLikely, "kernels were being compiled shortly before", "");
  if (clues.has(Signal::kPeermemMissing) && !clues.has_peermem())
    add("driver.peermem-missing", Likelihood::kLikely,
        "no GPUDirect RDMA provider was found before", "");
  if (clues.links_wheel_without_ibgda())
    add("hang.nvshmem-without-ibgda", Likelihood::kLikely,
        "DeepEP's NVSHMEM is one of site-packages, or has no IBGDA", "");
  if (clues.has_cpu_handler())
    add("hang.cpu-handler", Likelihood::kLikely, "the log or the environment names the CPU handler",
        "");
  if (is_qp_field_version(clues))
    add("versions.nvshmem-qp-fields",
        clues.lacks_qp_fix() ? Likelihood::kLikely : Likelihood::kPossible,
        "NVSHMEM " + clues.nvshmem_version(),
        "git merge-base --is-ancestor 29d31c0 HEAD, in DeepEP's checkout: without it, it is this "
        "one");
  if (clues.has(Signal::kMetaTimeout) && clues.link_layer() != "InfiniBand")
    add("hang.multi-qp", Likelihood::kPossible, "RDMA meta data did not arrive",
        "RoCE with several queue pairs, and a DeepEP before PR #181");
  if (reach == Reach::kSome && !was_compiling(clues)) {
    add("hang.late-peer", Likelihood::kPossible, "only some ranks waited in vain",
        "what the other ranks did meanwhile");
    add("hang.idle-rank", Likelihood::kPossible, "",
        "with data parallelism: did the other ranks have no tokens?");
  }
}

// Nothing speaks for any cause: what it could be, and what would tell.
std::vector<Hypothesis> open_causes(Reach reach) {
  const char* all = reach == Reach::kAll ? "every rank waited: nothing ever arrived" : "";
  return {
      {"hang.nvshmem-without-ibgda", Likelihood::kOpen, all,
       "'NVSHMEM path' in DeepEP's build output, and `nvshmem-info -a`"},
      {"versions.nvshmem-qp-fields", Likelihood::kOpen, all,
       "NVSHMEM 3.5 or newer, and DeepEP's checkout without commit 29d31c0"},
      {"driver.peermem-missing", Likelihood::kOpen, all, "lsmod | grep peermem, on every node"},
      {"hang.compile-skew", Likelihood::kOpen, "",
       "did a rank compile kernels in the two minutes before?"},
      {"hang.idle-rank", Likelihood::kOpen, "", "did some ranks have no tokens?"},
      {"hang.qp-depth", Likelihood::kOpen, "", "low latency with 512 tokens a rank or more"},
  };
}

}  // namespace

std::vector<Hypothesis> explain_timeout(const Clues& clues) {
  const Reach reach = reach_of(clues);
  std::vector<Hypothesis> found;
  add_evident(clues, reach, found);
  if (found.empty()) return open_causes(reach);
  const bool is_settled = found.size() == 1 && found.front().likelihood == Likelihood::kLikely;
  if (!is_settled)
    for (Hypothesis& hypothesis : found)
      if (hypothesis.decides.empty())
        hypothesis.decides = "mend this one first and run again: several things speak for a cause";
  return found;
}

}  // namespace ferry::ops
