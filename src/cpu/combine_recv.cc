// Combine, the summing half: each token's owner adds its rows in a fixed order, read from the
// peers' y (pull) or from its own staging (push).
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "cpu/copy.hpp"
#include "cpu/engine.hpp"
#include "cpu/reduce.hpp"

namespace ferry::cpu {

using layout::Operation;

namespace {

constexpr std::int64_t kTokensPerPiece = 16;
constexpr std::size_t kMostRows = 32;  // of one token: top_k at most

// Starts the reads of a row that is summed next; the processor goes on by itself.
void prefetch_start(const std::byte* row, std::int64_t row_bytes) {
  constexpr std::int64_t kMostBytes = 512;
  for (std::int64_t offset = 0; offset < std::min(row_bytes, kMostBytes); offset += 64)
    __builtin_prefetch(row + offset, 0, 2);
}

float load_float(const std::byte* address) {
  float value = 0;
  std::memcpy(&value, address, 4);
  return value;
}

}  // namespace

// row_of(token, entry) and weight_of(token, entry, k) give the addresses of a row and of the float
// that came back with it.
template <typename RowOf, typename WeightOf>
void Engine::sum_tokens(CombineOperation& combine,
                        std::int64_t first_token,
                        std::int64_t end_token,
                        const RowOf& row_of,
                        const WeightOf& weight_of) {
  const RouteState& route = *combine.route;
  const int top_k = config_.top_k;
  const bool is_weighted = combine.topk_weights != nullptr;
  // Entries stand by (rank, k); the other orders go by k.
  const bool is_by_k = is_weighted || config_.row_order == RowOrder::kHighestKAscending;
  // A large batch does not stay in the cache: streaming the sums out spares the reads of `out` that
  // plain stores cost.
  const bool is_streamed =
      !combine.is_low_latency && can_stream(combine.out, combine.out_pitch, combine.row_bytes);
  pool_.parallel_for(
      end_token - first_token, kTokensPerPiece, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t token = first_token + begin; token < first_token + end; ++token) {
          const std::span<const plan::SendEntry> stored = route.send.of_token(token);
          if (token + 1 < first_token + end)
            for (const plan::SendEntry& entry : route.send.of_token(token + 1))
              prefetch_start(row_of(token + 1, entry), combine.row_bytes);
          std::array<plan::SendEntry, kMostRows> entries;
          std::copy(stored.begin(), stored.end(), entries.begin());
          const auto entries_end = entries.begin() + static_cast<std::ptrdiff_t>(stored.size());
          if (is_by_k)
            std::sort(entries.begin(), entries_end,
                      [](const auto& a, const auto& b) { return a.k < b.k; });
          if (combine.kind != Operation::kCombineWeights) {
            std::array<const void*, kMostRows> rows{};
            std::array<float, kMostRows> weights{};
            for (std::size_t i = 0; i < stored.size(); ++i) {
              rows[i] = row_of(token, entries[i]);
              if (is_weighted)
                weights[i] = load_float(combine.topk_weights + token * combine.topk_weights_pitch +
                                        entries[i].k * 4);
            }
            SumArgs sum;
            sum.dtype = combine.dtype;
            sum.hidden = combine.hidden;
            sum.out = combine.out + token * combine.out_pitch;
            sum.is_streamed = is_streamed;
            sum.rows = std::span<const void* const>(rows.data(), stored.size());
            sum.weights = is_weighted ? weights.data() : nullptr;
            if (combine.bias != nullptr) sum.bias = combine.bias + token * combine.bias_pitch;
            if (combine.second_bias != nullptr)
              sum.second_bias = combine.second_bias + token * combine.second_bias_pitch;
            sum_rows(sum);
          }
          if (!combine.has_row_weights) continue;
          float* out = combine.combined_weights + token * top_k;
          std::fill_n(out, top_k, 0.0f);
          for (auto entry = entries.begin(); entry != entries_end; ++entry) {
            if (route.shape.layout != Layout::kByRank) {
              out[entry->k] = load_float(weight_of(token, *entry, 0));
              continue;
            }
            for (int k = 0; k < top_k; ++k) {
              const std::int32_t expert = route.topk[static_cast<std::size_t>(token * top_k + k)];
              if (expert >= 0 &&
                  route.owners->rank_of[static_cast<std::size_t>(expert)] == entry->rank)
                out[k] = load_float(weight_of(token, *entry, k));
            }
          }
        }
        gate_.tick_progress();
        stream_fence();
      });
}

void Engine::pull_tokens(CombineOperation& combine) {
  const std::uint64_t sequence = combine.sequence;
  if (combine.has_row_weights) last_offer_ = sequence;  // peers read it until they acknowledge
  const int weights_per_row = row_weights_per_row(*combine.route);
  struct Source {
    const std::byte* rows;
    std::int64_t pitch;
    const std::byte* weights;
  };
  std::vector<Source> sources;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const layout::OperationWords& theirs = gate_.words_of(peer, sequence);
    const std::byte* arena = arena_.base_of(peer);
    sources.push_back(
        {arena + theirs.rows_offset, theirs.rows_pitch, arena + theirs.weights_offset});
  }
  sum_tokens(
      combine, 0, combine.route->num_tokens,
      [&](std::int64_t, const plan::SendEntry& entry) {
        const Source& source = sources[static_cast<std::size_t>(entry.rank)];
        return source.rows + entry.row * source.pitch;
      },
      [&](std::int64_t, const plan::SendEntry& entry, int k) {
        const Source& source = sources[static_cast<std::size_t>(entry.rank)];
        return source.weights + (entry.row * weights_per_row + k) * 4;
      });
  gate_.announce(Word::kAcknowledged, sequence);
  count_combine(combine);
}

// Tokens [first_token, end_token) lie in `area` from its start.
void Engine::sum_staged_tokens(CombineOperation& combine,
                               std::int64_t first_token,
                               std::int64_t end_token,
                               const std::byte* area) {
  if (end_token <= first_token) return;
  const int slots = plan::slots_per_token(combine.route->shape.layout, num_ranks(), config_.top_k);
  const std::int64_t pitch = push_pitch(combine);
  const auto record = [&](std::int64_t token, const plan::SendEntry& entry) {
    return area + ((token - first_token) * slots + entry.slot) * pitch;
  };
  const auto row_of = [&](std::int64_t token, const plan::SendEntry& entry) {
    return entry.rank == rank() && combine.takes_own_rows_from_y()
               ? combine.y + entry.row * combine.y_pitch
               : record(token, entry);
  };
  sum_tokens(combine, first_token, end_token, row_of,
             [&](std::int64_t token, const plan::SendEntry& entry, int k) {
               return record(token, entry) + combine.row_bytes + k * 4;
             });
}

void Engine::finish_combine(CombineOperation& combine) {
  if (combine.is_finished) return;
  combine.is_finished = true;
  if (combine.is_low_latency) return finish_low_latency_combine(combine);
  if (combine.is_pull) {
    // y and the weights are the caller's again only when every peer has read them.
    gate_.wait_all(Word::kAcknowledged, combine.sequence, combine.sequence);
    return;
  }
  gate_.wait_all(Word::kMoved, combine.sequence, combine.sequence);
  const std::int64_t first = (combine.num_chunks - 1) * combine.tokens_per_chunk;
  sum_staged_tokens(combine, first, combine.route->num_tokens,
                    arena_.base() + layout_.staging[combine.staging_area]);
  is_staging_used_[combine.staging_area] = false;
  count_combine(combine);
}

void Engine::count_combine(CombineOperation& combine) {
  RouteState& route = *combine.route;
  if (combine.kind == Operation::kCombineWeights) return;
  const auto num_own = static_cast<std::int64_t>(route.send.entries.size());
  std::int64_t num_own_remote = 0;
  for (const plan::SendEntry& entry : route.send.entries)
    num_own_remote += entry.rank != rank() ? 1 : 0;
  std::int64_t num_received = 0;
  for (const std::int64_t rows : route.receive.rows_from_rank) num_received += rows;
  const std::int64_t num_local = route.receive.rows_from_rank[static_cast<std::size_t>(rank())];
  const std::int64_t num_sent = num_received - num_local;
  const std::int64_t num_staged = combine.takes_own_rows_from_y() ? num_sent : num_received;
  for (Counters* counters : {&counters_, &route.counters}) {
    counters->combines += 1;
    counters->combine_logical_bytes += num_received * combine.row_bytes;  // contributed
    counters->combine_wire_bytes +=
        (combine.is_pull ? num_own_remote : num_sent) * combine.row_bytes;
    counters->memory_bytes_read += num_own * combine.row_bytes;
    counters->memory_bytes_written += route.num_tokens * combine.row_bytes;
    if (combine.is_pull) continue;
    counters->memory_bytes_read += num_staged * combine.row_bytes;
    counters->memory_bytes_written += num_staged * combine.row_bytes;
    counters->staged_bytes += num_staged * combine.row_bytes;
  }
}

}  // namespace ferry::cpu
