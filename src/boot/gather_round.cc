#include "boot/gather_round.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/human.hpp"

namespace ferry::boot {

GatherRound::GatherRound(int size, std::size_t max_bytes)
    : max_bytes_(max_bytes),
      num_missing_(size),
      has_come_(static_cast<std::size_t>(size)),
      parts_(static_cast<std::size_t>(size)) {}

std::optional<Failed> GatherRound::add(int rank, const Contribution& contribution) {
  const auto index = static_cast<std::size_t>(rank);
  if (contribution.round != number_ || has_come_[index]) {
    return Failed{
        number_, ErrorCode::kInternal,
        fmt::format("rank {} is at round {} of the store, the group at {}; try: report it", rank,
                    contribution.round, number_)};
  }
  if (step_rank_ < 0) {
    step_rank_ = rank;
    step_ = contribution.step;
  } else if (step_ != contribution.step) {
    return Failed{number_, ErrorCode::kInvalidArgument,
                  fmt::format("ranks are at different steps: rank {} at '{}', rank {} at '{}'",
                              step_rank_, step_, rank, contribution.step)};
  }
  num_bytes_ += contribution.bytes.size();
  if (num_bytes_ > max_bytes_) {
    return Failed{number_, ErrorCode::kInvalidArgument,
                  fmt::format("the ranks give more than {} in all at step '{}'",
                              human_bytes(static_cast<std::int64_t>(max_bytes_)), step_)};
  }
  has_come_[index] = true;
  parts_[index] = contribution.bytes;
  --num_missing_;
  return std::nullopt;
}

std::vector<std::uint32_t> GatherRound::missing() const {
  std::vector<std::uint32_t> ranks;
  for (std::size_t rank = 0; rank < has_come_.size(); ++rank) {
    if (!has_come_[rank]) ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return ranks;
}

Gathered GatherRound::take() {
  const std::size_t size = parts_.size();
  Gathered gathered{number_, std::exchange(parts_, std::vector<std::string>(size))};
  ++number_;
  num_missing_ = static_cast<int>(size);
  num_bytes_ = 0;
  step_rank_ = -1;
  has_come_.assign(size, false);
  return gathered;
}

}  // namespace ferry::boot
