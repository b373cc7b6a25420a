#include "cuda/route_pool.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda/check.hpp"
#include "layout/layout_builder.hpp"

namespace ferry::cuda {

namespace {

constexpr std::int64_t kMostPlaces = 1024;
constexpr std::int64_t kLeastPlaces = 8;
constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;
constexpr std::int64_t kAlignment = 256;

// The parts of one place, in bytes from its start.
struct Parts {
  std::int64_t topk, home, entries, num_entries, chunk_counts, bases, counts, topk_fault, has_error,
      bytes;
};

Parts parts_of(const RoutePool::Shape& shape) {
  layout::LayoutBuilder ranges;
  const std::int64_t selections = shape.max_tokens * shape.top_k;
  const std::int64_t columns = std::int64_t{shape.num_experts} + shape.num_ranks;
  const std::int64_t chunks =
      (shape.max_tokens + RouteView::kChunkTokens - 1) / RouteView::kChunkTokens;
  Parts parts{};
  parts.topk = ranges.take(selections * 4, kAlignment);
  parts.home = ranges.take(selections * 4, kAlignment);
  parts.entries = ranges.take(selections * std::int64_t{sizeof(RowEntry)}, kAlignment);
  parts.num_entries = ranges.take(shape.max_tokens * 4, kAlignment);
  parts.chunk_counts = ranges.take(chunks * columns * 4, kAlignment);
  parts.bases = ranges.take(columns * 8, kAlignment);
  parts.counts =
      ranges.take((3 * std::int64_t{shape.num_experts} + shape.num_ranks + 3) * 8, kAlignment);
  parts.topk_fault = ranges.take(8, kAlignment);
  parts.has_error = ranges.take(4, kAlignment);
  parts.bytes = ranges.bytes(kAlignment);
  return parts;
}

}  // namespace

RoutePool::Lease::Lease(Lease&& other) noexcept
    : free_(std::move(other.free_)), index_(std::exchange(other.index_, -1)) {}

RoutePool::Lease& RoutePool::Lease::operator=(Lease&& other) noexcept {
  std::swap(free_, other.free_);
  std::swap(index_, other.index_);
  return *this;
}

RoutePool::Lease::~Lease() {
  const auto free = free_.lock();
  if (free && index_ >= 0) free->push_back(index_);  // within the reserved capacity
}

RoutePool::RoutePool(const Shape& shape, cudaStream_t stream) : shape_(shape), stream_(stream) {
  device_pitch_ = parts_of(shape).bytes;
  answer_pitch_ = layout::LayoutBuilder::align_up(
      std::int64_t{sizeof(RouteAnswer)} +
          std::int64_t{shape.num_ranks} * (shape.num_experts + shape.num_ranks) * 4,
      kAlignment);
  num_places_ = static_cast<int>(std::clamp(kMostBytes / std::max(device_pitch_, 8 * answer_pitch_),
                                            kLeastPlaces, kMostPlaces));
  check(cudaMallocAsync(reinterpret_cast<void**>(&device_),
                        static_cast<std::size_t>(num_places_ * device_pitch_), stream),
        "device memory for routes");
  check(cudaHostAlloc(reinterpret_cast<void**>(&answers_),
                      static_cast<std::size_t>(num_places_ * answer_pitch_), cudaHostAllocPortable),
        "pinned memory for routes");
  std::memset(answers_, 0, static_cast<std::size_t>(num_places_ * answer_pitch_));
  free_ = std::make_shared<std::vector<int>>();
  free_->reserve(static_cast<std::size_t>(num_places_));
  for (int place = num_places_ - 1; place >= 0; --place) free_->push_back(place);
}

RoutePool::~RoutePool() {
  cudaFreeAsync(device_, stream_);
  cudaFreeHost(answers_);
}

RoutePool::Lease RoutePool::take() {
  FERRY_CHECK(
      !free_->empty(), ErrorCode::kNoResource,
      "{} routes are alive on this exchange, it has room for no more; try: drop routes that "
      "are not needed",
      num_places_);
  Lease lease;
  lease.free_ = free_;
  lease.index_ = free_->back();
  free_->pop_back();
  return lease;
}

void RoutePool::fill(const Lease& lease, RouteView& view) const {
  const Parts parts = parts_of(shape_);
  std::byte* start = device_ + lease.index_ * device_pitch_;
  view.topk = reinterpret_cast<std::int32_t*>(start + parts.topk);
  view.home = reinterpret_cast<std::uint32_t*>(start + parts.home);
  view.entries = reinterpret_cast<RowEntry*>(start + parts.entries);
  view.num_entries = reinterpret_cast<std::int32_t*>(start + parts.num_entries);
  view.chunk_counts = reinterpret_cast<std::int32_t*>(start + parts.chunk_counts);
  view.bases = reinterpret_cast<std::int64_t*>(start + parts.bases);
  view.counts = reinterpret_cast<std::int64_t*>(start + parts.counts);
  view.topk_fault = reinterpret_cast<std::uint64_t*>(start + parts.topk_fault);
  view.has_error = reinterpret_cast<std::uint32_t*>(start + parts.has_error);
  view.answer = reinterpret_cast<RouteAnswer*>(answers_ + lease.index_ * answer_pitch_);
}

}  // namespace ferry::cuda
