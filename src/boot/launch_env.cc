#include "boot/launch_env.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "boot/host_list.hpp"
#include "boot/secret.hpp"
#include "boot/wire.hpp"

namespace ferry::boot {

namespace {

constexpr std::int64_t kMaxPort = 65535;
constexpr std::int64_t kMaxJobNumber = 4'294'967'295;

// The variables of one launcher.
class Variables {
 public:
  Variables(const Lookup& lookup, const char* launcher) : lookup_(lookup), launcher_(launcher) {}

  [[nodiscard]] const char* launcher() const { return launcher_; }
  [[nodiscard]] bool has(const char* name) const { return lookup_(name).has_value(); }
  [[nodiscard]] std::optional<std::string> text(const char* name) const { return lookup_(name); }

  // The first of two names that is set, empty text counting as not set.
  [[nodiscard]] std::string first_of(const char* a, const char* b) const {
    std::string value = lookup_(a).value_or("");
    return value.empty() ? lookup_(b).value_or("") : value;
  }

  [[nodiscard]] std::optional<std::int64_t> number(const char* name,
                                                   std::int64_t min,
                                                   std::int64_t max) const {
    const std::optional<std::string> value = lookup_(name);
    if (!value) return std::nullopt;
    std::int64_t number = 0;
    const char* end = value->data() + value->size();
    const auto result = std::from_chars(value->data(), end, number);
    FERRY_CHECK(result.ec == std::errc{} && result.ptr == end && number >= min && number <= max,
                ErrorCode::kInvalidArgument, "{}='{}' is not a whole number from {} to {}", name,
                *value, min, max);
    return number;
  }

  // Rank and size of the group, given together.
  [[nodiscard]] Meeting ranks(const char* rank_name, const char* size_name) const {
    const auto rank = number(rank_name, 0, kMaxRanks - 1);
    const auto size = number(size_name, 1, kMaxRanks);
    check_pair(rank, rank_name, size_name);
    check_pair(size, size_name, rank_name);
    FERRY_CHECK(*rank < *size, ErrorCode::kInvalidArgument, "{}='{}' is not below {}='{}'",
                rank_name, *rank, size_name, *size);
    Meeting meeting;
    meeting.rank = static_cast<int>(*rank);
    meeting.size = static_cast<int>(*size);
    meeting.launcher = launcher_;
    return meeting;
  }

 private:
  void check_pair(const std::optional<std::int64_t>& value,
                  const char* name,
                  const char* other) const {
    const bool is_other_set = has(other);
    FERRY_CHECK(value || !is_other_set, ErrorCode::kInvalidArgument, "{}='{}' is given without {}",
                other, text(other).value_or(""), name);
  }

  const Lookup& lookup_;
  const char* launcher_;
};

std::string join_host_port(const std::string& host, std::int64_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// FERRY_RANK, FERRY_SIZE, FERRY_ADDRESS.
Meeting read_own(const Variables& variables, const Env& env) {
  Meeting meeting = variables.ranks("FERRY_RANK", "FERRY_SIZE");
  FERRY_CHECK(
      meeting.size == 1 || !env.address.empty(), ErrorCode::kInvalidArgument,
      "FERRY_RANK and FERRY_SIZE are given without FERRY_ADDRESS; try: "
      "FERRY_ADDRESS=unix:<name of the job> on one host, <host of rank 0>:<port> on several");
  return meeting;
}

std::string open_mpi_address(const Variables& variables, const Meeting& meeting) {
  const auto local_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMaxRanks);
  FERRY_CHECK(local_size == meeting.size, ErrorCode::kInvalidArgument,
              "Open MPI runs {} of {} ranks on this host and names no address for them to meet; "
              "try: mpirun -x FERRY_ADDRESS=<host of rank 0>:<port>",
              local_size ? std::to_string(*local_size) : "an unknown number", meeting.size);
  const std::string job = variables.first_of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid");
  FERRY_CHECK(!job.empty(), ErrorCode::kInvalidArgument,
              "Open MPI gives neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid to name the job; "
              "try: mpirun -x FERRY_ADDRESS=unix:<name of the job>");
  return "unix:open-mpi-" + job;
}

// A port of this job's own where nobody chose one, below the range that clients are given.
std::int64_t slurm_port(std::int64_t job, std::int64_t step) {
  constexpr std::int64_t kFirst = 20000;
  constexpr std::int64_t kCount = 12000;
  return kFirst + (job + 31 * step) % kCount;
}

std::string slurm_address(const Variables& variables, const Env& env) {
  const auto job = variables.number("SLURM_JOB_ID", 0, kMaxJobNumber);
  FERRY_CHECK(job, ErrorCode::kInvalidArgument, "SLURM_PROCID='{}' is given without SLURM_JOB_ID",
              variables.text("SLURM_PROCID").value_or(""));
  const auto step = variables.number("SLURM_STEP_ID", 0, kMaxJobNumber).value_or(0);
  auto num_nodes = variables.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks);
  if (!num_nodes) num_nodes = variables.number("SLURM_NNODES", 1, kMaxRanks);
  if (num_nodes == 1) return fmt::format("unix:slurm-{}-{}", *job, step);
  const std::string nodes = variables.first_of("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  FERRY_CHECK(!nodes.empty(), ErrorCode::kInvalidArgument,
              "Slurm gives neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST to name the host of "
              "rank 0; try: FERRY_ADDRESS=<host of rank 0>:<port>");
  return join_host_port(expand_host_list(nodes).front(),
                        env.port ? *env.port : slurm_port(*job, step));
}

Meeting read_slurm(const Variables& variables) {
  const bool has_step = variables.has("SLURM_STEP_NUM_TASKS");
  return variables.ranks("SLURM_PROCID", has_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
}

std::string torch_unix_address(const Variables& variables) {
  const std::string port = variables.text("MASTER_PORT").value_or("");
  const std::string run = variables.text("TORCHELASTIC_RUN_ID").value_or("");
  FERRY_CHECK(!port.empty() || !run.empty(), ErrorCode::kInvalidArgument,
              "RANK='{}' is given without MASTER_PORT or TORCHELASTIC_RUN_ID to name the job",
              variables.text("RANK").value_or(""));
  // A restarted job must not meet what is left of its predecessor.
  const std::string restart = variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return fmt::format("unix:torchrun-{}-{}-{}", port, run, restart);
}

std::string torch_address(const Variables& variables, const Env& env, const Meeting& meeting) {
  const std::string host = variables.text("MASTER_ADDR").value_or("");
  const auto master_port = variables.number("MASTER_PORT", 1, kMaxPort);
  const auto local_size = variables.number("LOCAL_WORLD_SIZE", 1, kMaxRanks);
  const bool is_one_host = local_size ? *local_size == meeting.size : is_loopback(host);
  if (is_one_host) return torch_unix_address(variables);
  FERRY_CHECK(!host.empty(), ErrorCode::kInvalidArgument, "RANK='{}' is given without MASTER_ADDR",
              meeting.rank);
  FERRY_CHECK(env.port || master_port, ErrorCode::kInvalidArgument,
              "MASTER_ADDR='{}' is given without MASTER_PORT or FERRY_PORT", host);
  FERRY_CHECK(env.port || *master_port < kMaxPort, ErrorCode::kInvalidArgument,
              "MASTER_PORT='{}' leaves no port above it for the meeting; try: FERRY_PORT=<a free "
              "port>",
              *master_port);
  return join_host_port(host, env.port ? *env.port : *master_port + 1);
}

struct Launched {
  Meeting meeting;
  std::function<std::string()> address;  // asked only where it is needed
};

std::optional<Launched> find_launcher(const Lookup& lookup, const Env& env) {
  const auto has = [&lookup](const char* name) { return lookup(name).has_value(); };
  if (has("FERRY_RANK") || has("FERRY_SIZE")) {
    return Launched{read_own(Variables(lookup, "FERRY_*"), env), nullptr};
  }
  const bool has_torch = has("RANK") || has("WORLD_SIZE");
  const bool is_torchrun = has_torch && has("TORCHELASTIC_RUN_ID");
  if (!is_torchrun && has("OMPI_COMM_WORLD_RANK")) {
    const Variables variables(lookup, "Open MPI");
    const Meeting meeting = variables.ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    return Launched{meeting, [=] { return open_mpi_address(variables, meeting); }};
  }
  if (!is_torchrun && has("SLURM_PROCID")) {
    const Variables variables(lookup, "Slurm");
    return Launched{read_slurm(variables), [=, &env] { return slurm_address(variables, env); }};
  }
  if (has_torch) {
    const Variables variables(lookup, "torchrun");
    const Meeting meeting = variables.ranks("RANK", "WORLD_SIZE");
    return Launched{meeting, [=, &env] { return torch_address(variables, env, meeting); }};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Meeting> read_launch_env(const Lookup& lookup, const Env& env) {
  std::optional<Launched> launched = find_launcher(lookup, env);
  if (!launched) return std::nullopt;
  Meeting& meeting = launched->meeting;
  meeting.interface = env.interface;
  meeting.is_insecure = env.insecure;
  meeting.timeout = env.meeting_timeout;
  if (meeting.size == 1) return meeting;
  meeting.address = env.address.empty() ? launched->address() : env.address;
  const bool is_unix = meeting.address.rfind("unix:", 0) == 0;
  if (!is_unix) meeting.secret = read_secret(env);
  return meeting;
}

bool has_process_launcher(const Lookup& lookup) {
  constexpr const char* kNames[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID",
                                    "FERRY_RANK"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&lookup](const char* name) { return lookup(name).has_value(); });
}

}  // namespace ferry::boot
