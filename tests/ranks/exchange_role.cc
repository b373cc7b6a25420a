#include "ranks/exchange_role.hpp"

#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "ferry/exchange.hpp"
#include "support/host_tensor.hpp"
#include "support/role.hpp"
#include "support/spawn.hpp"

namespace ferry::ranks {
namespace {

using support::HostTensor;
using support::say;

constexpr int kTopk = 2;
constexpr std::int64_t kNumTokens = 16;
constexpr std::int64_t kHidden = 256;

struct Arguments {
  Mode mode = Mode::kHighThroughput;
  int num_rounds = 5;
  int halting_rank = kNobody;
  std::string halting_step;
};

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  arguments.mode = words.at(0) == "ll" ? Mode::kLowLatency : Mode::kHighThroughput;
  arguments.num_rounds = std::stoi(words.at(1));
  if (words.size() > 2) arguments.halting_rank = std::stoi(words.at(2));
  if (words.size() > 3) arguments.halting_step = words.at(3);
  return arguments;
}

class RankOfRounds {
 public:
  RankOfRounds(const Group& group, const Arguments& arguments)
      : group_(group),
        arguments_(arguments),
        exchange_(group, config_of(group, arguments)),
        x_(support::patterned(
            DType::kBf16, {kNumTokens, kHidden}, static_cast<std::uint64_t>(group.rank()))) {}

  Exchange& exchange() { return exchange_; }

  void run() {
    for (int round = 1; round <= arguments_.num_rounds; ++round) {
      round_ = round;
      run_round();
    }
  }

 private:
  static ExchangeConfig config_of(const Group& group, const Arguments& arguments) {
    ExchangeConfig config;
    config.num_experts = 4 * group.size();
    config.top_k = kTopk;
    config.hidden = kHidden;
    config.max_tokens = kNumTokens;
    config.mode = arguments.mode;
    config.layout = Layout::kByExpert;
    config.num_threads = 1;
    return config;
  }

  // Two experts on two neighbouring ranks.
  HostTensor choose_experts() const {
    HostTensor topk(DType::kInt32, {kNumTokens, kTopk});
    for (std::int64_t t = 0; t < kNumTokens; ++t)
      for (int k = 0; k < kTopk; ++k)
        topk.set(t * kTopk + k,
                 static_cast<double>((t * 4 + k * 5 + round_) % (4 * group_.size())));
    return topk;
  }

  void run_round() {
    const HostTensor topk = choose_experts();
    HostTensor out(DType::kBf16, {kNumTokens, kHidden});
    maybe_halt("before-route");
    auto planning = exchange_.begin_route(topk.view());
    maybe_halt("after-begin-route");
    const Route route = planning.finish();
    maybe_halt("before-dispatch");
    auto dispatching = exchange_.begin_dispatch(route, x_.view());
    maybe_halt("after-begin-dispatch");
    const Delivery delivery = dispatching.finish();
    maybe_halt("before-combine");
    auto combining = exchange_.begin_combine(route, delivery.tokens(), out.view());
    maybe_halt("after-begin-combine");
    combining.finish();
    // Experts that return what they got: the sum is twice the token.
    for (std::int64_t i = 0; i < out.num_elements(); ++i)
      if (out.at(i) != 2 * x_.at(i)) throw std::runtime_error("a sum is wrong");
    maybe_halt("between-rounds");
  }

  void maybe_halt(const std::string& step) {
    if (group_.rank() != arguments_.halting_rank || round_ != 3 || step != arguments_.halting_step)
      return;
    say("AT " + step);
    const std::string command = support::hear();
    if (command == "leave") group_.leave();
    if (command != "go") ::_exit(command == "leave" ? 0 : 3);
  }

  Group group_;
  const Arguments& arguments_;
  Exchange exchange_;
  HostTensor x_;
  int round_ = 0;
};

void tell_what_later_calls_do(const Group& group, RankOfRounds& rank) {
  const auto again = support::attempt([&] { rank.run(); });
  say("AGAIN " + std::to_string(again.took.count()) + " " + again.message);
  const auto check = support::attempt([&] { group.check(); });
  say("CHECK " + check.message);
  const auto destroy = support::attempt([&] {
    rank.exchange().destroy();
    rank.exchange().destroy();
  });
  say("DESTROYED " + std::to_string(destroy.took.count()));
}

int run_exchange(const std::vector<std::string>& words) {
  const Arguments arguments = parse(words);
  const Group group = Group::from_env();
  RankOfRounds rank(group, arguments);
  say("MET " + std::to_string(group.rank()) + " of " + std::to_string(group.size()));
  const auto outcome = support::attempt([&] { rank.run(); });
  if (!outcome.failed) {
    say("FINISHED");
    return 0;
  }
  say("FAULT " + std::to_string(static_cast<int>(outcome.code)) + " " + outcome.message);
  tell_what_later_calls_do(group, rank);
  return 0;
}

int run_meeting(const std::vector<std::string>&) {
  const auto outcome = support::attempt([] {
    const Group group = Group::from_env();
    group.barrier();
    say("MET " + std::to_string(group.rank()) + " of " + std::to_string(group.size()));
  });
  if (outcome.failed)
    say("FAULT " + std::to_string(static_cast<int>(outcome.code)) + " " + outcome.message);
  return 0;
}

const support::RoleEntry kExchange("exchange", run_exchange);
const support::RoleEntry kMeeting("meeting", run_meeting);

}  // namespace
}  // namespace ferry::ranks
