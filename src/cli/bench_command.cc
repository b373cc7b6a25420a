#include <CLI/CLI.hpp>
#include <map>
#include <memory>

#include "bench/bench.hpp"
#include "cli/command.hpp"

namespace ferry::cli {

namespace {

template <typename Choice>
using Choices = std::map<std::string, Choice>;

template <typename Choice>
void add_choice(CLI::App& command,
                const std::string& name,
                Choice& target,
                const Choices<Choice>& choices,
                const std::string& help) {
  std::string words;
  for (const auto& [word, choice] : choices) words += (words.empty() ? "" : "|") + word;
  command
      .add_option_function<std::string>(
          name, [&target, choices](const std::string& word) { target = choices.at(word); }, help)
      ->check([choices, words](const std::string& word) {
        return choices.contains(word) ? std::string() : "'" + word + "' is not one of " + words;
      })
      ->type_name(words);
}

void add_shape_options(CLI::App& command, bench::BenchOptions& options) {
  command.add_option("--engine", options.engine, "Engine that moves the rows")
      ->type_name("cpu|cuda")
      ->capture_default_str();
  command.add_option("--ranks", options.ranks, "Ranks in all; default 8, or the launcher's");
  command.add_option("--nodes", options.nodes, "Pretended nodes of this machine")
      ->capture_default_str();
  command.add_option("--tokens", options.tokens,
                     "Tokens of each rank; default 4096 (ll: 128), or a recording's");
  command.add_option("--hidden", options.hidden, "Elements of a row")->capture_default_str();
  command.add_option("--experts", options.experts, "Experts; default 256, or a recording's");
  command.add_option("--topk", options.topk, "Experts of a token; default 8, or a recording's");
  command.add_option("--dtype", options.dtype, "Form of the rows on the way; x is bf16")
      ->type_name("bf16|fp8|fp8-ue8m0")
      ->capture_default_str();
}

void add_form_options(CLI::App& command, bench::BenchOptions& options) {
  add_choice<Mode>(command, "--mode", options.mode,
                   {{"ht", Mode::kHighThroughput}, {"ll", Mode::kLowLatency}},
                   "High throughput (default) or low latency");
  add_choice<Layout>(
      command, "--layout", options.layout,
      {{"by-rank", Layout::kByRank}, {"by-expert", Layout::kByExpert}, {"padded", Layout::kPadded}},
      "Form of what is delivered; default by-rank");
  add_choice<Sizing>(command, "--sizing", options.sizing,
                     {{"exact", Sizing::kExact}, {"worst-case", Sizing::kWorstCase}},
                     "Size of what is delivered; default exact");
  add_choice<CombineForm>(
      command, "--combine", options.combine,
      {{"auto", CombineForm::kAuto}, {"pull", CombineForm::kPull}, {"push", CombineForm::kPush}},
      "How combine moves its rows; default auto");
  command.add_flag("--weighted", options.is_weighted, "Combine weighs the rows (not by-rank)");
  command
      .add_option("--routing", options.routing,
                  "Who goes where: uniform, zipf:S, grouped:KEPT/GROUPS, or a .npy file of "
                  "recorded top-k ids")
      ->capture_default_str();
  command.add_option("--layer", options.layer, "Layer of a recording [tokens, layers, topk]")
      ->capture_default_str();
}

// With a number the threads that move a rank's rows, without one the ranks themselves.
void add_threads(CLI::App& command, bench::BenchOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--threads",
          [&options](const std::vector<std::string>& words) {
            const bool has_number = !words.empty() && !words.front().empty();
            if (!has_number) {
              options.has_thread_ranks = true;
            } else if (!CLI::detail::lexical_cast(words.front(), options.threads)) {
              throw CLI::ValidationError("--threads", words.front() + " is not a whole number");
            }
          },
          "Threads of each rank, cpu engine (0: cores / ranks); without a number: --thread-ranks")
      ->expected(0, 1)
      ->type_name("[N]");
}

void add_run_options(CLI::App& command, bench::BenchOptions& options) {
  command.add_option("--iters", options.iters, "Timed iterations")->capture_default_str();
  command.add_option("--warmup", options.warmup, "Iterations before them")->capture_default_str();
  command.add_flag("--check", options.is_checked, "Compare every rank's results with the oracle");
  command.add_flag("!--no-ceiling", options.has_ceiling,
                   "Do not measure this machine's copy ceiling, which takes seconds");
  command.add_flag("--json", options.is_json, "Print one JSON object");
  command.add_option("--preset", options.preset, "Shape of a known benchmark")
      ->type_name("deepep-intranode");
  add_threads(command, options);
  command
      .add_option("--sms", options.sms,
                  "Multiprocessors of each rank, cuda engine; 0: the plan's choice")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Of routing and values")->capture_default_str();
}

void add_launch_options(CLI::App& command, bench::BenchOptions& options) {
  add_choice<bench::Launch>(
      command, "--launch", options.launch,
      {{"auto", bench::Launch::kAuto},
       {"self", bench::Launch::kSelf},
       {"env", bench::Launch::kEnv}},
      "Start the ranks (self), join a launcher's (env), or see (auto, default)");
  command.add_flag("--thread-ranks", options.has_thread_ranks,
                   "Ranks are threads of one process; on a shared GPU they need no MPS");
  command.add_option("--node-rank", options.node_rank, "This host's number, of real hosts by hand");
  command.add_option("--num-nodes", options.num_nodes, "Real hosts");
  command.add_option("--ranks-per-node", options.ranks_per_node, "Ranks of each host");
  command.add_option("--address", options.address, "Where rank 0 listens")->type_name("HOST:PORT");
}

}  // namespace

void add_bench_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("bench", "Run an exchange, time it and check it");
  const auto options = std::make_shared<bench::BenchOptions>();
  // Said twice, the last counts: a script's own default can be overruled, and the ranks that a
  // bench starts are given --launch a second time.
  command->option_defaults()->take_last();
  add_shape_options(*command, *options);
  add_form_options(*command, *options);
  add_run_options(*command, *options);
  add_launch_options(*command, *options);
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return bench::run_bench(*options, invocation.arguments);
    };
  });
}

}  // namespace ferry::cli
