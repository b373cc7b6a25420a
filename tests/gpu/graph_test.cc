// Operations captured into graphs: replayed with new inputs, in any common order, beside eager
// calls, with one rank late.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "base/bf16.hpp"
#include "cuda/plugin.hpp"
#include "ferry/exchange.hpp"
#include "support/spawn.hpp"

namespace ferry {
namespace {

constexpr int kRanks = 4;
constexpr int kExperts = 16;
constexpr int kTopK = 4;
constexpr std::int64_t kTokens = 24;
constexpr std::int64_t kHidden = 256;

// What every rank does in one round: its ids and its rows, the same function on host and device
// side.
struct Round {
  std::vector<std::int64_t> ids;    // [T, K]
  std::vector<std::uint16_t> rows;  // bf16 [T, H], small integers
  std::vector<int> num_ranks;       // [T], distinct destinations
};

Round make_round(int rank, int number) {
  std::mt19937 random(static_cast<unsigned>(number * kRanks + rank));
  Round round;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    std::set<int> chosen;
    while (chosen.size() < kTopK) chosen.insert(static_cast<int>(random() % kExperts));
    std::set<int> ranks;
    int column = 0;
    for (const int expert : chosen) {
      const bool is_absent = column++ > 0 && random() % 4 == 0;
      round.ids.push_back(is_absent ? -1 : expert);
      if (!is_absent) ranks.insert(expert / (kExperts / kRanks));
    }
    round.num_ranks.push_back(static_cast<int>(ranks.size()));
    for (std::int64_t i = 0; i < kHidden; ++i)
      round.rows.push_back(float_to_bf16(static_cast<float>(random() % 32)));
  }
  return round;
}

// One rank with its tensors, its stream and its exchange.
class GraphRank {
 public:
  explicit GraphRank(const Group& group)
      : group_(group),
        device_(group.rank() % cuda::load_plugin().num_devices()),
        tools_(cuda::load_plugin().open_device(device_)),
        stream_(tools_->make_stream()),
        exchange_(group_, config()) {
    x_ = tensor(DType::kBf16, kHidden, 2);
    out_ = tensor(DType::kBf16, kHidden, 2);
    ids_ = tensor(DType::kInt64, kTopK, 8);
  }
  GraphRank(const GraphRank&) = delete;
  GraphRank& operator=(const GraphRank&) = delete;
  ~GraphRank() {
    tools_->synchronize(stream_);
    exchange_.destroy();
    for (const TensorView& view : {x_, out_, ids_}) tools_->release(view.data);
    tools_->destroy_stream(stream_);
  }

  void load(const Round& round) {
    tools_->copy(ids_.data, round.ids.data(), kTokens * kTopK * 8, stream_);
    tools_->copy(x_.data, round.rows.data(), kTokens * kHidden * 2, stream_);
    tools_->fill(out_.data, 0xA5, kTokens * kHidden * 2, stream_);
  }

  // Route, `num_dispatches` dispatches, and a combine of the last delivery.
  void enqueue(int num_dispatches) {
    const Route route =
        exchange_.route(ids_, {.layout = {}, .sizing = Sizing::kWorstCase, .timeout = {}}, stream_);
    Delivery delivery;
    for (int i = 0; i < num_dispatches; ++i) delivery = exchange_.dispatch(route, x_, {}, stream_);
    exchange_.combine(route, delivery.tokens(), out_, {}, stream_);
    routes_.push_back(route);  // a graph uses its route's memory for as long as it is replayed
  }

  int capture(int num_dispatches) {
    tools_->begin_capture(stream_);
    enqueue(num_dispatches);
    return tools_->end_capture(stream_);
  }
  void replay(int graph) { tools_->replay(graph, stream_); }
  void delay(std::chrono::microseconds time) { tools_->delay(time, stream_); }
  void barrier() { group_.barrier(); }

  // The number of elements that differ from num_ranks * row, exactly.
  std::int64_t count_wrong(const Round& round) {
    std::vector<std::uint16_t> got(static_cast<std::size_t>(kTokens * kHidden));
    tools_->copy(got.data(), out_.data, kTokens * kHidden * 2, stream_);
    exchange_.check();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int count = round.num_ranks[i / static_cast<std::size_t>(kHidden)];
      const float want = static_cast<float>(count) * bf16_to_float(round.rows[i]);
      wrong += got[i] != float_to_bf16(want) ? 1 : 0;
    }
    return wrong;
  }

 private:
  ExchangeConfig config() const {
    ExchangeConfig out;
    out.num_experts = kExperts;
    out.top_k = kTopK;
    out.hidden = kHidden;
    out.max_tokens = kTokens;
    out.device = Device::cuda(device_);
    return out;
  }
  TensorView tensor(DType dtype, std::int64_t width, std::int64_t bytes) {
    return TensorView::dense(tools_->allocate(kTokens * width * bytes), dtype, {kTokens, width},
                             Device::cuda(device_));
  }

  Group group_;
  int device_;
  std::unique_ptr<cuda::DeviceTools> tools_;
  StreamRef stream_;
  Exchange exchange_;
  TensorView x_, out_, ids_;
  std::vector<Route> routes_;
};

TEST(Graph, ReplaysWithNewInputsAThousandTimes) {
  support::run_ranks(kRanks, [](Group group) {
    GraphRank rank(group);
    rank.load(make_round(group.rank(), 0));
    rank.enqueue(1);  // eager once: owners are on the device, as a capture wants it
    ASSERT_EQ(rank.count_wrong(make_round(group.rank(), 0)), 0);
    const int graph = rank.capture(1);
    rank.barrier();

    for (int number = 1; number <= 1000; ++number) {
      const Round round = make_round(group.rank(), number);
      rank.load(round);
      rank.replay(graph);
      ASSERT_EQ(rank.count_wrong(round), 0) << "replay " << number;
    }
  });
}

TEST(Graph, MixesTwoGraphsAndEagerCallsInAnyCommonOrderWithOneRankLate) {
  support::run_ranks(kRanks, [](Group group) {
    GraphRank rank(group);
    const Round first = make_round(group.rank(), 0);
    rank.load(first);
    rank.enqueue(1);
    ASSERT_EQ(rank.count_wrong(first), 0);
    const int graphs[] = {rank.capture(1), rank.capture(3)};
    rank.barrier();

    std::mt19937 common(7);  // the same order on every rank
    for (int number = 1; number <= 500; ++number) {
      const Round round = make_round(group.rank(), number);
      const auto choice = static_cast<int>(common() % 5);
      const bool is_late = common() % 8 == 0;
      rank.load(round);
      if (is_late && group.rank() == number % kRanks) rank.delay(std::chrono::microseconds(500));
      if (choice == 4)
        rank.enqueue(2);
      else
        rank.replay(graphs[choice % 2]);
      ASSERT_EQ(rank.count_wrong(round), 0) << "round " << number << " choice " << choice;
    }
  });
}

TEST(Graph, RunsManyReplaysWithoutTheHostInBetween) {
  support::run_ranks(kRanks, [](Group group) {
    GraphRank rank(group);
    const Round round = make_round(group.rank(), 3);
    rank.load(round);
    rank.enqueue(1);
    ASSERT_EQ(rank.count_wrong(round), 0);
    const int graphs[] = {rank.capture(1), rank.capture(3)};
    rank.barrier();

    rank.load(round);
    std::mt19937 common(11);
    for (int number = 0; number < 300; ++number) {
      if (group.rank() == number % kRanks && number % 16 == 0)
        rank.delay(std::chrono::microseconds(300));
      rank.replay(graphs[common() % 2]);
    }
    EXPECT_EQ(rank.count_wrong(round), 0);
  });
}

}  // namespace
}  // namespace ferry
