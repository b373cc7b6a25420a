#include "boot/store_messages.hpp"

#include <fmt/format.h>

namespace ferry::boot {

namespace {

constexpr std::size_t kMaxNamed = 16;

std::string refusal_reason(int rank, int size, const Refused& refused) {
  switch (refused.reason) {
    case Refusal::kVersion:
      return fmt::format("it speaks version {} of the store protocol, this rank {}",
                         refused.expected, kProtocolVersion);
    case Refusal::kSize:
      return fmt::format("its group has {} ranks, this rank expects {}", refused.expected, size);
    case Refusal::kRankOutOfRange:
      return fmt::format("rank {} is not below its group's size {}", rank, refused.expected);
    case Refusal::kRankTaken: return fmt::format("another process has joined as rank {}", rank);
    case Refusal::kSecretMissing:
      return "its group has a secret and this rank has none; try: FERRY_SECRET_FILE=<its file>";
    case Refusal::kSecretUnexpected: return "this rank has a secret and its group has none";
    case Refusal::kWrongSecret: return "the secrets differ; try: sha256sum \"$FERRY_SECRET_FILE\"";
    case Refusal::kGroupLost:
      return fmt::format("rank {} was lost while the group formed", refused.expected);
  }
  return "unknown reason";
}

}  // namespace

std::string name_ranks(const std::vector<std::uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMaxNamed) return text + fmt::format(" and {} more", ranks.size() - kMaxNamed);
    const bool is_last = i + 1 == ranks.size();
    if (i > 0) text += is_last ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string late_message(int rank,
                         std::string_view step,
                         std::chrono::milliseconds waited,
                         const std::vector<std::uint32_t>& missing) {
  return fmt::format("rank {} waited {} ms at step '{}' for {}", rank, waited.count(), step,
                     name_ranks(missing));
}

std::string not_joined_message(int rank,
                               int size,
                               std::string_view address,
                               std::chrono::milliseconds waited,
                               const std::vector<std::uint32_t>& missing,
                               std::uint32_t num_strangers) {
  std::string text =
      fmt::format("rank {} waited {} ms at '{}' for {} of {} ranks to join: {}", rank,
                  waited.count(), address, missing.size(), size, name_ranks(missing));
  if (num_strangers > 0) {
    text += fmt::format("; connections turned away: {}", num_strangers);
  }
  return text;
}

std::string lost_message(int rank, std::string_view step, int peer, PeerState state) {
  return fmt::format(
      "rank {} lost rank {} at step '{}': {}", rank, peer, step,
      state == PeerState::kLeft ? "it left the group" : "its connection closed without a goodbye");
}

std::string refused_message(int rank, int size, std::string_view address, const Refused& refused) {
  return fmt::format("rank {} was refused by rank 0 at '{}': {}", rank, address,
                     refusal_reason(rank, size, refused));
}

}  // namespace ferry::boot
