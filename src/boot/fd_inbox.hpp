#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "boot/proof.hpp"
#include "boot/socket.hpp"

namespace ferry::boot {

// What precedes a descriptor on the wire: "FRYD" | u32 rank | token, with the descriptor attached.
inline constexpr std::size_t kPushBytes = 4 + 4 + sizeof(Digest);
[[nodiscard]] std::string encode_push(std::uint32_t rank, const Digest& token);
// The rank, where the bytes are a push that shows the token.
[[nodiscard]] std::optional<std::uint32_t> decode_push(std::string_view bytes, const Digest& token);

// Takes in the descriptors that peers push, on a thread of its own, until it is destroyed.
class FdInbox {
 public:
  // Throws kSystem where no socket is to be had.
  FdInbox(int rank, int size, const Digest& token);
  ~FdInbox();

  // The socket name that peers push to.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Waits until all of `ranks` have pushed. False: not by the deadline, or the inbox failed, which
  // error() tells.
  [[nodiscard]] bool wait_for(const std::vector<std::uint32_t>& ranks, Deadline deadline);
  [[nodiscard]] std::vector<std::uint32_t> missing_of(const std::vector<std::uint32_t>& ranks);
  [[nodiscard]] int error();  // an errno value; 0: none
  // By rank; not open where nothing came.
  [[nodiscard]] std::vector<UniqueFd> take();

 private:
  struct Pending {
    UniqueFd connection;
    Deadline deadline;
  };

  void run() noexcept;
  void accept_some(std::vector<Pending>& pending);
  // True: done with this connection.
  [[nodiscard]] bool receive(int connection);
  void accept_push(std::string_view bytes, std::vector<UniqueFd> descriptors);
  void fail(int error);

  const int rank_;
  const Digest token_;
  std::string name_;
  UniqueFd listener_;
  Wakeup stop_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> received_;  // by rank
  int error_ = 0;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ferry::boot
