#include "bench/bench.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bench/device_count.hpp"
#include "bench/launch.hpp"
#include "bench/memory_need.hpp"
#include "bench/mps.hpp"
#include "bench/report.hpp"
#include "bench/run.hpp"
#include "boot/launch_env.hpp"

namespace ferry::bench {

namespace {

void print_note(const std::string& note) { fmt::print(stderr, "ferry bench: {}\n", note); }

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_note(note);
}

int num_self_started(const BenchOptions& options) {
  if (!options.address.empty()) return *options.num_nodes * *options.ranks_per_node;
  return options.ranks.value_or(kDefaultRanks);
}

int num_local(const BenchOptions& options, int num_ranks) {
  return options.ranks_per_node ? *options.ranks_per_node : num_ranks;
}

Batch make_batch(const BenchOptions& options, int num_ranks) {
  const int local_ranks = num_local(options, num_ranks);
  // First without tables, which for a wild size would themselves not fit.
  check_memory(plan_inputs(options, local_ranks, num_ranks, planned_tokens(options).value_or(0)),
               memory::read_availability());
  Batch batch;
  batch.routing = make_routing_table(options, num_ranks);
  batch.layout = options.layout;
  batch.quantize = quantize_of(options);
  batch.is_weighted = options.is_weighted;
  batch.hidden = options.hidden;
  batch.seed = options.seed;
  const Device device = is_cuda(options) ? Device::cuda(0) : Device::cpu();
  const MemoryNeed need = Exchange::bytes_needed(make_config(options, batch, device), num_ranks);
  check_memory(plan_memory(options, batch, need, local_ranks), memory::read_availability());
  return batch;
}

Group join_group(const BenchOptions& options) {
  if (options.nodes == 1) return Group::from_env();
  const auto meeting = boot::read_launch_env(process_environment(), env());
  if (!meeting) return Group::from_env();  // has the words for a missing description
  return Group::open({.rank = meeting->rank,
                      .size = meeting->size,
                      .address = meeting->address,
                      .secret = meeting->secret,
                      .num_pretended_nodes = options.nodes});
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

std::vector<RankRecord> gather_records(const Group& group, const RankRecord& own) {
  const std::string text = format_record(own);
  std::vector<RankRecord> records;
  for (const auto& bytes : group.all_gather(std::as_bytes(std::span(text))))
    records.push_back(parse_record({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  return records;
}

// mpirun gives its ranks a terminal of its own, whatever it writes to itself: only ranks that this
// program has started, and a single one, know where their output goes.
bool is_terminal(const BenchOptions& options, int num_ranks, int fd) {
  const bool is_own = options.launch == Launch::kEnv || options.has_thread_ranks || num_ranks == 1;
  return is_own && ::isatty(fd) == 1;
}

void print_report(const Report& report) {
  const bool has_colour = is_terminal(report.options, report.ranks, STDOUT_FILENO);
  const std::string text =
      report.options.is_json ? format_json(report) : format_table(report, has_colour);
  FERRY_CHECK(
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0,
      ErrorCode::kSystem, "cannot write the result to stdout: {}", errno_text(errno));
}

// The calling thread is one rank of `group`.
int run_as_rank(const BenchOptions& options, const Batch& batch, const Group& group) {
  set_log_rank(group.rank(), group.size());
  const bool has_progress = group.rank() == 0 && is_terminal(options, group.size(), STDERR_FILENO);
  const int num_local_ranks = num_local(options, group.size());
  RankRun run = run_rank(options, batch, group, has_progress);
  if (!is_cuda(options)) run.record.threads = threads_per_rank(options, num_local_ranks);
  const std::vector<RankRecord> records = gather_records(group, run.record);
  const Report report = make_report({.options = options,
                                     .batch = batch,
                                     .num_nodes = group.num_nodes(),
                                     .num_local_ranks = num_local_ranks,
                                     .host = host_name(),
                                     .ceiling = run.ceiling,
                                     .ping_pong = run.ping_pong},
                                    records);
  if (group.rank() == 0) print_report(report);
  group.barrier();  // nobody leaves while another still needs the group
  return !options.is_checked || report.check.is_ok() ? 0 : 1;
}

// This process is one rank of `group`.
int run_alone(const BenchOptions& options, const Group& group) {
  set_log_rank(group.rank(), group.size());
  FERRY_CHECK(!options.ranks || *options.ranks == group.size(), ErrorCode::kInvalidArgument,
              "--ranks is {}, but the launcher started {}; try: --launch self",
              options.ranks.value_or(0), group.size());
  const Batch batch = make_batch(options, group.size());
  if (group.rank() == 0) print_notes(batch.routing.notes);
  group.barrier();  // every rank has looked at the memory before anyone takes any
  return run_as_rank(options, batch, group);
}

// All ranks are threads of this process and share what they only read.
int run_threads(const BenchOptions& options, int num_ranks) {
  // Before the driver starts: streams that wait for each other need a hardware queue each.
  if (is_cuda(options)) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const Batch batch = make_batch(options, num_ranks);
  print_notes(batch.routing.notes);
  std::atomic<int> exit_code = 0;
  Group::run_threads(num_ranks,
                     [&](const Group& group) {
                       if (run_as_rank(options, batch, group) != 0) exit_code = 1;
                     },
                     {.num_pretended_nodes = options.nodes});
  return exit_code;
}

int run_processes(const BenchOptions& options,
                  int num_ranks,
                  std::span<const std::string> arguments) {
  // Refused here once, rather than by every rank. The tables are gone before the ranks start.
  static_cast<void>(make_batch(options, num_ranks));
  const int num_devices = is_cuda(options) ? count_devices() : 0;
  std::vector<RankProcess> ranks = plan_ranks(options, num_ranks);
  const BlockedSignals signals;  // before MPS starts, which an interrupt must not leave running
  MpsUse mps;
  if (is_cuda(options))
    mps = provide_mps(static_cast<int>(ranks.size()), num_devices, process_environment(),
                      {.signal_mask = signals.before()});
  if (!mps.note.empty()) print_note(mps.note);
  if (mps.daemon)
    for (RankProcess& rank : ranks)
      rank.environment.emplace_back(kMpsPipeVariable, mps.daemon->pipe_directory());
  return run_rank_processes(arguments, ranks, signals);
}

}  // namespace

int run_bench(BenchOptions options, std::span<const std::string> arguments) {
  apply_preset(options);
  check_options(options);
  const LaunchPlan plan = plan_launch(options, process_environment());
  print_notes(plan.notes);
  if (!plan.is_self) return run_alone(options, join_group(options));

  const int num_ranks = num_self_started(options);
  if (num_ranks == 1) return run_alone(options, Group::self());
  if (options.has_thread_ranks) return run_threads(options, num_ranks);
  return run_processes(options, num_ranks, arguments);
}

}  // namespace ferry::bench
