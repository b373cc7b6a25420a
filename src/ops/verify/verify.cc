#include "ops/verify/verify.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "ops/facts/gather.hpp"
#include "ops/install/process.hpp"
#include "ops/install/step.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr std::chrono::minutes kTestDeadline{20};
constexpr const char* kPort = "29500";
// With the environment script where there is one; the words after it come as arguments, never as
// text.
constexpr const char* kWithEnvironment = "[ ! -r \"$0\" ] || . \"$0\"; exec \"$@\"";

std::string python(const VerifyOptions& options) {
  const std::string own = options.prefix + "/venv/bin/python3";
  return ::access(own.c_str(), X_OK) == 0 ? own : "python3";
}

std::vector<std::string> test_words(const VerifyOptions& options, int nodes) {
  const std::string script = nodes == 1 ? "tests/test_intranode.py" : "tests/test_internode.py";
  return {python(options), options.prefix + "/DeepEP/" + script,
          "--num-tokens",  "2048",
          "--hidden",      "7168",
          "--num-experts", "256",
          "--num-topk",    "8"};
}

// One node says so itself: a WORLD_SIZE that is exported for several makes the test wait for ever.
std::vector<std::string> test_environment(const VerifyOptions& options, int nodes, int node_rank) {
  const std::string address = nodes == 1                ? "127.0.0.1"
                              : options.address.empty() ? this_host()
                                                        : options.address;
  return {"WORLD_SIZE=" + std::to_string(nodes), "RANK=" + std::to_string(node_rank),
          "MASTER_ADDR=" + address, std::string("MASTER_PORT=") + kPort};
}

Finding command_finding(const char* id,
                        const char* title,
                        const ProcessResult& result,
                        const char* fix) {
  const std::vector<std::string> lines = lines_of(result.output);
  const std::string last = lines.empty() ? "" : "; " + lines.back();
  return {id,
          result.is_fine() ? Verdict::kOk : Verdict::kFail,
          title,
          result.is_fine() ? "ran to its end" : result.words() + last,
          "what does not run here does not serve either",
          fix,
          "docs/deepep-install.md"};
}

class Verification {
 public:
  explicit Verification(const VerifyOptions& options) : options_(options) {}

  std::vector<Finding> deep_ep() {
    const Facts facts = gather_facts(Root());
    const ProcessResult import = run({python(options_), "-c", "import deep_ep"}, {});
    std::vector<Finding> findings = {
        command_finding("verify.import", "import deep_ep", import,
                        "ferry install; ferry diagnose, with this output")};
    append(findings, check_installed(facts));
    findings.push_back(nvshmem_info());
    if (!import.is_fine() || facts.gpu_list().empty()) {
      findings.push_back({"verify.one-node", Verdict::kUnknown, "DeepEP's test on one node",
                          import.is_fine() ? "no GPU" : "not tried: deep_ep does not import", "",
                          test_line(options_, 1, 0), "docs/deepep-install.md"});
      return findings;
    }
    append(findings, test("verify.one-node", "DeepEP's test on one node", 1));
    if (!options_.peers.empty())
      append(findings, test("verify.multi-node", "DeepEP's test between nodes",
                            static_cast<int>(options_.peers.size()) + 1));
    return findings;
  }

  std::vector<Finding> ferry() {
    const std::string program = "/proc/" + std::to_string(::getpid()) + "/exe";
    const char* fix = "the output of: ferry bench --check";
    std::vector<Finding> findings = {command_finding(
        "verify.cpu", "an exchange over 4 ranks on the CPU, checked",
        run_process({.argv = {program, "bench", "--engine", "cpu", "--ranks", "4", "--tokens",
                              "256", "--hidden", "1024", "--no-ceiling", "--check"},
                     .deadline = kTestDeadline}),
        fix)};
    if (!gather_facts(Root()).gpu_list().empty())
      findings.push_back(command_finding(
          "verify.cuda", "an exchange over 8 ranks on the GPU, checked",
          run_process({.argv = {program, "bench", "--engine", "cuda", "--ranks", "8", "--check"},
                       .deadline = kTestDeadline}),
          fix));
    return findings;
  }

 private:
  static void append(std::vector<Finding>& findings, std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  }

  ProcessResult run(const std::vector<std::string>& words,
                    const std::vector<std::string>& variables) {
    std::vector<std::string> argv = {"sh", "-c", kWithEnvironment,
                                     options_.prefix + "/unified-env.sh", "env"};
    argv.insert(argv.end(), variables.begin(), variables.end());
    argv.insert(argv.end(), words.begin(), words.end());
    return run_process({.argv = argv, .deadline = kTestDeadline});
  }

  Finding nvshmem_info() {
    const ProcessResult info = run({options_.prefix + "/nvshmem/bin/nvshmem-info", "-a"}, {});
    if (info.is_fine()) return judge_nvshmem_info(info.output);
    return {"verify.ibgda",
            Verdict::kUnknown,
            "IBGDA in NVSHMEM",
            "nvshmem-info: " + info.words(),
            "",
            "nvshmem-info -a, of the NVSHMEM that DeepEP was built against",
            "docs/deepep-install.md"};
  }

  std::vector<Finding> test(const char* id, const char* title, int nodes) {
    for (int node = 0; nodes > 1 && node < nodes; ++node)
      fmt::print(stderr, "node {}: {}\n", node, test_line(options_, nodes, node));
    const Facts before = gather_facts(Root());
    const ProcessResult result =
        run(test_words(options_, nodes),
            test_environment(options_, nodes, nodes == 1 ? 0 : options_.node_rank));
    std::vector<Finding> findings = {
        command_finding(id, title, result, "ferry diagnose, with its output")};
    if (!result.is_fine()) return findings;
    const Facts after = gather_facts(Root());
    append(findings, judge_figures(result.output, nodes, after));
    if (nodes > 1) findings.push_back(judge_counters(before, after));
    return findings;
  }

  const VerifyOptions& options_;
};

void list_tests(const VerifyOptions& options) {
  fmt::print("{}\n", test_line(options, 1, 0));
  const int nodes = static_cast<int>(options.peers.size()) + 1;
  for (int node = 0; nodes > 1 && node < nodes; ++node)
    fmt::print("{}  # on node {}\n", test_line(options, nodes, node), node);
}

}  // namespace

std::string test_line(const VerifyOptions& options, int nodes, int node_rank) {
  std::vector<std::string> words = test_environment(options, nodes, node_rank);
  for (std::string& word : words) word = shell_quote(word);
  for (const std::string& word : test_words(options, nodes)) words.push_back(shell_quote(word));
  return ". " + shell_quote(options.prefix + "/unified-env.sh") + " && " + join(words, " ");
}

int run_verify(const VerifyOptions& options) {
  if (options.is_listing) {
    list_tests(options);
    return 0;
  }
  const bool is_live = options.source.root == "/" && options.source.files.empty();
  std::vector<Finding> findings;
  if (!is_live)
    findings = check_installed(load_facts(options.source));
  else if (options.stack == "ferry")
    findings = Verification(options).ferry();
  else
    findings = Verification(options).deep_ep();
  if (options.is_json)
    fmt::print("{}", print_json(findings_json(findings, "ferry.verify/1", this_host())));
  else
    fmt::print("{}", format_findings(findings, {.is_complete = true,
                                                .is_colored = ::isatty(STDOUT_FILENO) == 1}));
  return has_failure(findings) ? 1 : 0;
}

}  // namespace ferry::ops
