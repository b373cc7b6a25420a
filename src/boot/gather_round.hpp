#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "boot/wire.hpp"

namespace ferry::boot {

// One round of an all_gather as rank 0 sees it: who has come, with what. Not thread-safe.
class GatherRound {
 public:
  explicit GatherRound(int size, std::size_t max_bytes = kMaxGatheredBytes);

  // Takes one rank's part. A failure is for all ranks: another step than the other ranks', a second
  // part, or more bytes in all than a round may hold.
  [[nodiscard]] std::optional<Failed> add(int rank, const Contribution& contribution);

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& step() const noexcept { return step_; }
  [[nodiscard]] bool is_complete() const noexcept { return num_missing_ == 0; }
  [[nodiscard]] std::vector<std::uint32_t> missing() const;

  // The parts; the next round begins. Requires is_complete().
  [[nodiscard]] Gathered take();

 private:
  std::uint64_t number_ = 0;
  std::size_t max_bytes_;
  int num_missing_;
  std::size_t num_bytes_ = 0;
  std::string step_;  // as the first rank to come named it
  int step_rank_ = -1;
  std::vector<bool> has_come_;
  std::vector<std::string> parts_;
};

}  // namespace ferry::boot
