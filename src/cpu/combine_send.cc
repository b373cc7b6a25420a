// Combine, the sending half. Pull: offer y and the row weights to the token owners. Push: write
// each row, its weights behind it, into its slot at the token's owner, [tokens, slots] in staging,
// in chunks of tokens where the memory limit asks for it.
#include <algorithm>
#include <cstring>

#include "base/human.hpp"
#include "cpu/copy.hpp"
#include "cpu/engine.hpp"
#include "cpu/row_source.hpp"

namespace ferry::cpu {

using layout::Operation;
using layout::OperationShape;
using layout::OperationWords;

int Engine::row_weights_per_row(const RouteState& route) const noexcept {
  return route.shape.layout == Layout::kByRank ? config_.top_k : 1;
}

std::int64_t Engine::push_pitch(const CombineOperation& combine) const noexcept {
  return layout::staging_pitch(combine.row_bytes,
                               combine.has_row_weights ? row_weights_per_row(*combine.route) : 0);
}

// Pull: the owners read the weights from the arena, so copy them there (scalars only).
void Engine::offer_row_weights(CombineOperation& combine) {
  if (!combine.has_row_weights) return;
  // An earlier combine that is still outstanding may have peers reading the same scratch.
  gate_.wait_all(Word::kAcknowledged, last_offer_, last_offer_);
  const RouteState& route = *combine.route;
  const std::int64_t row_bytes = row_weights_per_row(route) * 4;
  for_each_filled_run(route, [&](std::int64_t first, std::int64_t num_rows) {
    if (num_rows == 0) return;
    arena_.reserve(layout_.weights_scratch + first * row_bytes, num_rows * row_bytes);
    std::memcpy(arena_.base() + layout_.weights_scratch + first * row_bytes,
                reinterpret_cast<const std::byte*>(combine.row_weights) + first * row_bytes,
                static_cast<std::size_t>(num_rows * row_bytes));
  });
}

void Engine::begin_combine(CombineOperation& combine) {
  RouteState& route = *combine.route;
  if (!route.is_planned) plan_pending_routes(route.sequence);
  if (route.error) combine.error = route.error;  // whatever else is wrong follows from it
  const bool is_scalars_only = combine.kind == Operation::kCombineWeights;
  // Not from the tensors: a rank whose tensors are unusable must take the same way as the others.
  combine.is_low_latency =
      config_.is_low_latency && combine.form != CombineForm::kPull && !is_scalars_only;
  if (combine.is_low_latency) return begin_low_latency_combine(combine);

  if (!combine.error) combine.error = capture_error([&] { offer_row_weights(combine); });
  OperationWords words;
  words.num_tokens = route.num_tokens;
  words.is_split = combine.is_split ? 1 : 0;
  words.rows_offset = combine.y_offset.value_or(-1);
  words.rows_pitch = combine.y_pitch;
  words.weights_offset = layout_.weights_scratch;
  set_error(words, combine.error);
  combine.sequence = publish(shape_of(combine), words);
  gate_.pass(combine.sequence);

  // The form follows from exchanged values only: every rank decides the same.
  bool can_pull = true;
  bool is_any_split = false;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const OperationWords& theirs = gate_.words_of(peer, combine.sequence);
    is_any_split = is_any_split || theirs.is_split != 0;
    if (theirs.rows_offset >= 0 || is_scalars_only) continue;
    can_pull = false;
    FERRY_CHECK(combine.form != CombineForm::kPull, ErrorCode::kInvalidArgument,
                "combine by pull needs y inside the arena, rank {}'s y is outside; try: "
                "exchange.allocate, or form push",
                peer);
  }
  combine.is_pull = is_scalars_only || combine.form == CombineForm::kPull ||
                    (combine.form == CombineForm::kAuto && can_pull && !is_any_split);
  if (combine.is_pull)
    pull_tokens(combine);
  else
    begin_push(combine);
}

void Engine::begin_push(CombineOperation& combine) {
  const RouteState& route = *combine.route;
  const std::int64_t token_bytes =
      plan::slots_per_token(route.shape.layout, num_ranks(), config_.top_k) * push_pitch(combine);
  combine.num_chunks = 1;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const std::int64_t num_tokens = gate_.words_of(peer, combine.sequence).num_tokens;
    const plan::Chunks chunks = plan::plan_chunks(
        num_tokens, token_bytes, config_.memory_limit > 0 ? layout_.staging_bytes : 0);
    combine.num_chunks = std::max(combine.num_chunks, chunks.num_chunks);
  }
  combine.tokens_per_chunk =
      combine.num_chunks == 1 ? config_.max_tokens : layout_.staging_bytes / token_bytes;

  int area = 0;
  while (area < layout::ArenaLayout::kStagingAreas && is_staging_used_[area]) ++area;
  FERRY_CHECK(area < layout::ArenaLayout::kStagingAreas, ErrorCode::kInvalidArgument,
              "all {} staging areas of rank {} are taken by outstanding combines; try: finish one "
              "first",
              int{layout::ArenaLayout::kStagingAreas}, rank());
  combine.staging_area = area;
  for (std::int64_t chunk = 0; chunk < combine.num_chunks; ++chunk) {
    if (chunk > 0) {
      // The chunk before is summed, so its slots may be granted again.
      const std::int64_t first = (chunk - 1) * combine.tokens_per_chunk;
      gate_.wait_all(Word::kMoved, combine.sequence, combine.sequence);
      sum_staged_tokens(combine, first,
                        std::min(first + combine.tokens_per_chunk, route.num_tokens),
                        arena_.base() + layout_.staging[area]);
    }
    push_chunk(combine, chunk);
  }
  is_staging_used_[area] = true;  // until finish; a begin that failed holds none
}

void Engine::push_chunk(CombineOperation& combine, std::int64_t chunk) {
  const RouteState& route = *combine.route;
  const std::int64_t token_bytes =
      plan::slots_per_token(route.shape.layout, num_ranks(), config_.top_k) * push_pitch(combine);
  const std::int64_t area = layout_.staging[combine.staging_area];
  OperationShape shape = shape_of(combine);
  shape.operation = static_cast<std::int32_t>(Operation::kCombineChunk);
  OperationWords words;
  words.num_tokens = route.num_tokens;
  words.rows_offset = area;
  set_error(words, capture_error([&] {
              arena_.reserve(area,
                             std::min(route.num_tokens, combine.tokens_per_chunk) * token_bytes);
            }));
  combine.sequence = publish(shape, words);
  gate_.pass(combine.sequence);

  std::vector<std::byte*> areas;
  for (int peer = 0; peer < num_ranks(); ++peer)
    areas.push_back(arena_.base_of(peer) + gate_.words_of(peer, combine.sequence).rows_offset);
  const std::int64_t first = chunk * combine.tokens_per_chunk;
  push_rows(combine, first, first + combine.tokens_per_chunk, areas);
  gate_.announce(Word::kMoved, combine.sequence);
}

// Every row of y whose source token lies in [first_token, end_token) of its owner.
void Engine::push_rows(const CombineOperation& combine,
                       std::int64_t first_token,
                       std::int64_t end_token,
                       const std::vector<std::byte*>& areas) {
  const RouteState& route = *combine.route;
  const int slots = plan::slots_per_token(route.shape.layout, num_ranks(), config_.top_k);
  const std::int64_t pitch = push_pitch(combine);
  const int num_weights = combine.has_row_weights ? row_weights_per_row(route) : 0;
  const auto row_bytes = static_cast<std::size_t>(combine.row_bytes);
  const auto copy = [&combine](std::byte* place, const std::byte* row, std::size_t bytes) {
    // A small batch is still in the cache when its owner sums it, so it should stay there.
    if (combine.is_low_latency)
      std::memcpy(place, row, bytes);
    else
      stream_copy(place, row, bytes);
  };
  for_each_source_run(
      route, num_ranks(), [&](std::int64_t first_row, std::int64_t num_rows, int source, int) {
        std::byte* area = areas[static_cast<std::size_t>(source)];
        pool_.parallel_for(num_rows, 32, [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
            const std::int32_t* where = route.row_source.data() + row * 2;
            if (where[0] < first_token || where[0] >= end_token) continue;
            std::byte* place = area + ((where[0] - first_token) * slots + where[1]) * pitch;
            if (source != rank() || !combine.takes_own_rows_from_y())
              copy(place, combine.y + row * combine.y_pitch, row_bytes);
            if (num_weights > 0)
              std::memcpy(place + combine.row_bytes, combine.row_weights + row * num_weights,
                          static_cast<std::size_t>(num_weights) * 4);
          }
          gate_.tick_progress();
          stream_fence();
        });
      });
}

}  // namespace ferry::cpu
