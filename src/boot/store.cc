#include "boot/store.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "boot/address.hpp"
#include "boot/secret.hpp"
#include "boot/socket_store.hpp"

namespace ferry::boot {

namespace {

constexpr std::size_t kShortSecretBytes = 16;

void check_ranks(const Meeting& meeting) {
  FERRY_CHECK(meeting.size >= 1 && meeting.size <= kMaxRanks, ErrorCode::kInvalidArgument,
              "group size {} is not from 1 to {}", meeting.size, kMaxRanks);
  FERRY_CHECK(meeting.rank >= 0 && meeting.rank < meeting.size, ErrorCode::kInvalidArgument,
              "rank {} is not from 0 to {}, the group having {} ranks", meeting.rank,
              meeting.size - 1, meeting.size);
}

void check_secret(const Meeting& meeting) {
  if (meeting.secret.empty()) {
    FERRY_CHECK(meeting.is_insecure, ErrorCode::kUnavailable,
                "rank {} meets over TCP at '{}' and has no secret; try: {}", meeting.rank,
                meeting.address, kMakeSecretAdvice);
    FERRY_WARN("boot.store",
               "rank {} meets over TCP at '{}' without a secret: whoever can connect can join",
               meeting.rank, meeting.address);
  } else if (meeting.secret.size() < kShortSecretBytes) {
    FERRY_WARN("boot.store",
               "the secret has fewer than {} bytes and can be guessed by who records a meeting; "
               "try: {}",
               kShortSecretBytes, kMakeSecretAdvice);
  }
}

}  // namespace

std::unique_ptr<Store> open_store(const Meeting& meeting) {
  check_ranks(meeting);
  if (meeting.size == 1) return std::move(make_thread_stores(1).front());  // no socket at all
  const Address address = parse_address(meeting.address);
  if (address.is_unix) {
    Meeting local = meeting;
    local.secret.clear();  // the kernel vouches for the peer's uid
    return SocketStore::open(local, address);
  }
  check_secret(meeting);
  return SocketStore::open(meeting, address);
}

}  // namespace ferry::boot
