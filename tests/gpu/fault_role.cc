#include "gpu/fault_role.hpp"

#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "base/bf16.hpp"
#include "cuda/plugin.hpp"
#include "ferry/exchange.hpp"
#include "support/role.hpp"
#include "support/spawn.hpp"

namespace ferry::gpu {
namespace {

using support::say;

constexpr std::int64_t kNumTokens = 64;
constexpr std::int64_t kHidden = 1024;
constexpr int kExpertsPerRank = 4;
constexpr int kTopK = 2;

class FaultRank {
 public:
  FaultRank(const Group& group, const std::vector<std::string>& words)
      : group_(group),
        num_rounds_(std::stoi(words.at(1))),
        halting_rank_(std::stoi(words.at(2))),
        halting_step_(words.at(3)),
        device_(group.rank() % cuda::load_plugin().num_devices()),
        tools_(cuda::load_plugin().open_device(device_)),
        stream_(tools_->make_stream()),
        exchange_(group_, config(words.at(0))),
        x_(tensor(DType::kBf16, kHidden, 2)),
        out_(tensor(DType::kBf16, kHidden, 2)),
        ids_(tensor(DType::kInt32, kTopK, 4)) {
    // Two experts on two neighbouring ranks, so every sum is twice the token.
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < kNumTokens; ++t)
      for (int k = 0; k < kTopK; ++k)
        ids.push_back(
            static_cast<std::int32_t>((t * 4 + k * 5) % (kExpertsPerRank * group_.size())));
    put(ids_, ids);
    for (std::int64_t i = 0; i < kNumTokens * kHidden; ++i)
      values_.push_back(float_to_bf16(static_cast<float>((i * 7 + group_.rank()) % 61)));
    put(x_, values_);
  }
  ~FaultRank() {
    exchange_.destroy();
    for (void* pointer : memory_) tools_->release(pointer);
    tools_->destroy_stream(stream_);
  }
  FaultRank(const FaultRank&) = delete;
  FaultRank& operator=(const FaultRank&) = delete;

  void run() {
    for (round_ = 1; round_ <= num_rounds_; ++round_) run_round();
  }

  // Whether the context still works: memory, a kernel and a copy.
  void run_a_kernel() {
    constexpr std::int64_t kBytes = 1 << 20;
    void* memory = tools_->allocate(kBytes);
    const StreamRef stream = tools_->make_stream();
    tools_->fill(memory, 0x5A, kBytes, stream);
    tools_->delay(std::chrono::microseconds(10), stream);
    std::vector<unsigned char> bytes(kBytes);
    tools_->copy(bytes.data(), memory, kBytes, stream);
    if (bytes.front() != 0x5A || bytes.back() != 0x5A)
      throw std::runtime_error("a canary is wrong");
    tools_->destroy_stream(stream);
    tools_->release(memory);
  }

  Exchange& exchange() { return exchange_; }

 private:
  ExchangeConfig config(const std::string& mode) const {
    ExchangeConfig config;
    config.num_experts = kExpertsPerRank * group_.size();
    config.top_k = kTopK;
    config.hidden = kHidden;
    config.max_tokens = kNumTokens;
    config.mode = mode == "ll" ? Mode::kLowLatency : Mode::kHighThroughput;
    config.device = Device::cuda(device_);
    return config;
  }

  TensorView tensor(DType dtype, std::int64_t columns, std::int64_t element_bytes) {
    memory_.push_back(tools_->allocate(kNumTokens * columns * element_bytes));
    return TensorView::dense(memory_.back(), dtype, {kNumTokens, columns}, Device::cuda(device_));
  }

  template <typename Value>
  void put(const TensorView& to, const std::vector<Value>& values) {
    tools_->copy(to.data, values.data(), static_cast<std::int64_t>(values.size() * sizeof(Value)),
                 stream_);
  }

  void run_round() {
    maybe_halt("before-route");
    const Route route = exchange_.route(ids_, {}, stream_);
    maybe_halt("before-dispatch");
    auto dispatching = exchange_.begin_dispatch(route, x_, {}, stream_);
    maybe_halt("after-begin-dispatch");
    const Delivery delivery = dispatching.finish();
    maybe_halt("before-combine");
    exchange_.combine(route, delivery.tokens(), out_, {}, stream_);
    maybe_halt("after-combine");
    std::vector<std::uint16_t> sums(values_.size());
    tools_->copy(sums.data(), out_.data, static_cast<std::int64_t>(sums.size() * 2), stream_);
    exchange_.check();  // what the device found
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (bf16_to_float(sums[i]) != 2 * bf16_to_float(values_[i]))
        throw std::runtime_error("a sum is wrong");
  }

  void maybe_halt(const std::string& step) {
    if (group_.rank() != halting_rank_ || round_ != 3 || step != halting_step_) return;
    say("AT " + step);
    const std::string command = support::hear();
    if (command == "leave") group_.leave();
    if (command != "go") ::_exit(command == "leave" ? 0 : 3);
  }

  Group group_;
  int num_rounds_;
  int halting_rank_;
  std::string halting_step_;
  int device_;
  std::unique_ptr<cuda::DeviceTools> tools_;
  StreamRef stream_;
  Exchange exchange_;
  std::vector<void*> memory_;
  TensorView x_;
  TensorView out_;
  TensorView ids_;
  std::vector<std::uint16_t> values_;
  int round_ = 0;
};

int run_fault_rank(const std::vector<std::string>& words) {
  const Group group = Group::from_env();
  FaultRank rank(group, words);
  say("MET " + std::to_string(group.rank()));
  const auto outcome = support::attempt([&] { rank.run(); });
  if (!outcome.failed) {
    say("FINISHED");
    return 0;
  }
  say("FAULT " + std::to_string(static_cast<int>(outcome.code)) + " " + outcome.message);
  rank.run_a_kernel();
  say("KERNEL ran");
  const auto again = support::attempt([&] { rank.run(); });
  say("AGAIN " + std::to_string(again.took.count()) + " " + again.message);
  say("CHECK " + support::attempt([&] { group.check(); }).message);
  const auto destroy = support::attempt([&] {
    rank.exchange().destroy();
    rank.exchange().destroy();
  });
  say("DESTROYED " + std::to_string(destroy.took.count()));
  rank.run_a_kernel();
  say("KERNEL ran");
  return 0;
}

const support::RoleEntry kFaultRank("gpu-exchange", run_fault_rank);

}  // namespace
}  // namespace ferry::gpu
