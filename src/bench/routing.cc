#include "bench/routing.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "bench/random.hpp"

namespace ferry::bench {

namespace {

constexpr std::int64_t kAllTokens = INT64_MAX;

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

RoutingSpec parse_zipf(const std::string& text) {
  const auto exponent = parse_number<double>(std::string_view(text).substr(5));
  FERRY_CHECK(exponent && std::isfinite(*exponent) && *exponent >= 0 && *exponent <= 100,
              ErrorCode::kInvalidArgument,
              "--routing '{}': expected zipf:S with S from 0 to 100; try: --routing zipf:1.2",
              text);
  return ZipfRouting{*exponent};
}

RoutingSpec parse_grouped(const std::string& text) {
  const std::string_view numbers = std::string_view(text).substr(8);
  const std::size_t slash = std::min(numbers.find('/'), numbers.size());
  const auto kept = parse_number<int>(numbers.substr(0, slash));
  const auto groups = parse_number<int>(numbers.substr(std::min(slash + 1, numbers.size())));
  FERRY_CHECK(
      kept && groups && *kept >= 1 && *groups >= *kept && *groups <= 4096,
      ErrorCode::kInvalidArgument,
      "--routing '{}': expected grouped:KEPT/GROUPS with 1 <= KEPT <= GROUPS; try: --routing "
      "grouped:4/8",
      text);
  return GroupedRouting{*kept, *groups};
}

// Chooses the K experts of one token after another.
class Chooser {
 public:
  Chooser(const RoutingSpec& spec, int num_experts, int top_k, std::uint64_t seed)
      : spec_(spec), top_k_(static_cast<std::size_t>(top_k)), order_(size_t(num_experts)) {
    std::iota(order_.begin(), order_.end(), 0);
    keys_.resize(order_.size());
    if (const auto* zipf = std::get_if<ZipfRouting>(&spec_)) make_popularity(zipf->exponent, seed);
  }

  void choose(Random& random, int* ids) {
    if (std::holds_alternative<UniformRouting>(spec_)) return choose_uniform(random, ids);
    if (std::holds_alternative<ZipfRouting>(spec_)) {
      // The K smallest exponential variates with rates 1/inverse_rate_: sampling without return.
      for (std::size_t e = 0; e < keys_.size(); ++e)
        keys_[e] = -std::log(random.next_unit()) * inverse_rate_[e];
      return take_smallest(order_.size(), ids);
    }
    const auto& grouped = std::get<GroupedRouting>(spec_);
    for (double& key : keys_) key = -random.next_unit();  // a score, best first
    take_smallest(keep_best_groups(grouped), ids);
  }

 private:
  void make_popularity(double exponent, std::uint64_t seed) {
    std::vector<int> places = order_;
    Random random(seed, ~std::uint64_t{0}, 0);
    for (std::size_t i = places.size(); i > 1; --i)
      std::swap(places[i - 1], places[random.next_below(i)]);
    for (const int place : places) inverse_rate_.push_back(std::pow(place + 1, exponent));
  }

  // A partial shuffle, undone afterwards so that the choice depends on this token alone.
  void choose_uniform(Random& random, int* ids) {
    std::vector<std::size_t> swapped(top_k_);
    for (std::size_t k = 0; k < top_k_; ++k) {
      swapped[k] = k + random.next_below(order_.size() - k);
      std::swap(order_[k], order_[swapped[k]]);
      ids[k] = order_[k];
    }
    for (std::size_t k = top_k_; k > 0; --k) std::swap(order_[k - 1], order_[swapped[k - 1]]);
  }

  // Puts the experts of the kept groups first in order_; returns how many they are.
  std::size_t keep_best_groups(const GroupedRouting& grouped) {
    const auto num_groups = static_cast<std::size_t>(grouped.num_groups);
    const auto num_kept = static_cast<std::size_t>(grouped.num_kept);
    const std::size_t per_group = keys_.size() / num_groups;
    std::vector<std::pair<double, std::size_t>> groups;
    for (std::size_t g = 0; g < num_groups; ++g) {
      std::vector<double> scores(keys_.begin() + std::ptrdiff_t(g * per_group),
                                 keys_.begin() + std::ptrdiff_t((g + 1) * per_group));
      std::ranges::sort(scores);
      groups.emplace_back(per_group > 1 ? scores[0] + scores[1] : scores[0], g);
    }
    std::ranges::sort(groups);
    std::size_t filled = 0;
    for (std::size_t i = 0; i < num_kept; ++i)
      for (std::size_t e = 0; e < per_group; ++e)
        order_[filled++] = static_cast<int>(groups[i].second * per_group + e);
    return filled;
  }

  void take_smallest(std::size_t num_candidates, int* ids) {
    const auto begin = order_.begin();
    const auto less = [this](int a, int b) {
      const double key_a = keys_[static_cast<std::size_t>(a)];
      const double key_b = keys_[static_cast<std::size_t>(b)];
      return key_a != key_b ? key_a < key_b : a < b;
    };
    std::partial_sort(begin, begin + static_cast<std::ptrdiff_t>(top_k_),
                      begin + static_cast<std::ptrdiff_t>(num_candidates), less);
    std::copy_n(begin, top_k_, ids);
  }

  RoutingSpec spec_;
  std::size_t top_k_;
  std::vector<int> order_;
  std::vector<double> keys_;
  std::vector<double> inverse_rate_;
};

void check_grouped(const GroupedRouting& grouped, int num_experts, int top_k) {
  FERRY_CHECK(num_experts % grouped.num_groups == 0, ErrorCode::kInvalidArgument,
              "--routing grouped:{}/{}: {} experts do not divide into {} groups", grouped.num_kept,
              grouped.num_groups, num_experts, grouped.num_groups);
  const int candidates = grouped.num_kept * (num_experts / grouped.num_groups);
  FERRY_CHECK(top_k <= candidates, ErrorCode::kInvalidArgument,
              "--routing grouped:{}/{}: --topk {} is above the {} experts of {} groups",
              grouped.num_kept, grouped.num_groups, top_k, candidates, grouped.num_kept);
}

void generate(const BenchOptions& options, const RoutingSpec& spec, RoutingTable& table) {
  if (const auto* grouped = std::get_if<GroupedRouting>(&spec))
    check_grouped(*grouped, table.num_experts, table.top_k);
  const std::int64_t num_tokens = planned_tokens(options).value_or(0);
  Chooser chooser(spec, table.num_experts, table.top_k, options.seed);
  for (std::size_t rank = 0; rank < table.topk.size(); ++rank) {
    std::vector<int>& ids = table.topk[rank];
    ids.resize(static_cast<std::size_t>(num_tokens * table.top_k));
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      Random random(options.seed, rank, static_cast<std::uint64_t>(token));
      chooser.choose(random, &ids[static_cast<std::size_t>(token * table.top_k)]);
    }
  }
}

void replay(const BenchOptions& options,
            const std::string& path,
            const Recording& recording,
            RoutingTable& table) {
  FERRY_CHECK(!options.topk || *options.topk == recording.top_k, ErrorCode::kInvalidArgument,
              "--topk is {}, but recording '{}' has {} columns", *options.topk, path,
              recording.top_k);
  FERRY_CHECK(recording.max_id < table.num_experts, ErrorCode::kInvalidArgument,
              "--experts is {}, but recording '{}' names expert {}", table.num_experts, path,
              recording.max_id);
  const auto num_ranks = static_cast<int>(table.topk.size());
  table.topk = deal_recording(path, recording, options.layer, num_ranks,
                              options.tokens.value_or(kAllTokens));
  const std::int64_t wanted = options.tokens.value_or(0);
  if (wanted > table.num_tokens(0))
    table.notes.push_back(fmt::format("--tokens {} is more than the recording has for {} ranks: {}",
                                      wanted, num_ranks, table.num_tokens(0)));
}

}  // namespace

RoutingSpec parse_routing(const std::string& text) {
  if (text == "uniform") return UniformRouting{};
  if (text.starts_with("zipf:")) return parse_zipf(text);
  if (text.starts_with("grouped:")) return parse_grouped(text);
  FERRY_CHECK(text.ends_with(".npy") || std::filesystem::exists(text), ErrorCode::kInvalidArgument,
              "--routing '{}' is unknown, expected uniform, zipf:S, grouped:KEPT/GROUPS or a .npy "
              "file",
              text);
  return RecordedRouting{text};
}

std::optional<std::int64_t> planned_tokens(const BenchOptions& options) {
  if (options.tokens) return options.tokens;
  if (std::holds_alternative<RecordedRouting>(parse_routing(options.routing))) return std::nullopt;
  return options.mode == Mode::kLowLatency ? kDefaultLowLatencyTokens : kDefaultTokens;
}

std::vector<int> make_expert_owner(int num_experts, int num_ranks) {
  std::vector<int> owner;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int count = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
    owner.insert(owner.end(), static_cast<std::size_t>(count), rank);
  }
  return owner;
}

std::vector<std::vector<int>> deal_recording(const std::string& name,
                                             const Recording& recording,
                                             int layer,
                                             int num_ranks,
                                             std::int64_t max_tokens) {
  FERRY_CHECK(layer < recording.num_layers, ErrorCode::kInvalidArgument,
              "--layer is {}, but recording '{}' has {} (0 to {})", layer, name,
              recording.num_layers, recording.num_layers - 1);
  std::vector<std::vector<int>> dealt(static_cast<std::size_t>(num_ranks));
  std::int64_t next = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<int>& ids = dealt[static_cast<std::size_t>(rank)];
    const std::int64_t share =
        recording.num_tokens / num_ranks + (rank < recording.num_tokens % num_ranks ? 1 : 0);
    const std::int64_t count = std::min(share, max_tokens);
    for (const std::int64_t end = next + count; next < end; ++next) {
      const std::int64_t first = (next * recording.num_layers + layer) * recording.top_k;
      const auto begin = recording.ids.begin() + first;
      for (auto id = begin; id != begin + recording.top_k; ++id)
        FERRY_CHECK(*id < 0 || std::find(begin, id, *id) == id, ErrorCode::kInvalidArgument,
                    "recording '{}' names expert {} twice for token {}", name, *id, next);
      ids.insert(ids.end(), begin, begin + recording.top_k);
    }
  }
  return dealt;
}

std::vector<ReceivedLoad> count_received(const RoutingTable& table) {
  std::vector<ReceivedLoad> loads(table.topk.size());
  std::vector<std::int64_t> last_token(table.topk.size(), -1);  // that counted for this rank
  std::int64_t token = 0;
  for (const std::vector<int>& ids : table.topk) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i % static_cast<std::size_t>(table.top_k) == 0) ++token;
      if (ids[i] < 0) continue;
      const int owner = table.expert_owner[static_cast<std::size_t>(ids[i])];
      const auto rank = static_cast<std::size_t>(owner);
      ++loads[rank].num_selections;
      if (std::exchange(last_token[rank], token) != token) ++loads[rank].num_tokens;
    }
  }
  return loads;
}

RoutingTable make_routing_table(const BenchOptions& options, int num_ranks) {
  const RoutingSpec spec = parse_routing(options.routing);
  const auto* recorded = std::get_if<RecordedRouting>(&spec);
  const Recording recording = recorded != nullptr ? read_npy(recorded->path) : Recording{};
  RoutingTable table;
  table.topk.resize(static_cast<std::size_t>(num_ranks));
  table.top_k = recorded != nullptr ? recording.top_k : options.topk.value_or(kDefaultTopk);
  table.num_experts = options.experts.value_or(
      recorded != nullptr ? std::max(recording.max_id + 1, table.top_k) : kDefaultExperts);
  FERRY_CHECK(table.top_k <= table.num_experts, ErrorCode::kInvalidArgument,
              "--topk {} is above --experts {}", table.top_k, table.num_experts);
  table.expert_owner = make_expert_owner(table.num_experts, num_ranks);
  if (table.num_experts % num_ranks != 0)
    table.notes.push_back(
        fmt::format("{} experts do not divide by {} ranks: the first {} own one more",
                    table.num_experts, num_ranks, table.num_experts % num_ranks));

  if (recorded != nullptr)
    replay(options, recorded->path, recording, table);
  else
    generate(options, spec, table);
  for (int rank = 0; rank < num_ranks; ++rank)
    table.max_tokens = std::max(table.max_tokens, table.num_tokens(rank));
  return table;
}

}  // namespace ferry::bench
