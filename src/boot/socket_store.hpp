#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "boot/connection.hpp"
#include "boot/join.hpp"
#include "boot/store_server.hpp"

namespace ferry::boot {

// A store over sockets, Unix or TCP. Every rank, rank 0 included, is a client of rank 0's service;
// one thread per rank owns the connection, so that a death is seen at once whatever the caller
// does.
class SocketStore final : public Store {
 public:
  // Joins and waits for the whole group; see open_store().
  static std::unique_ptr<SocketStore> open(const Meeting& meeting, const Address& address);
  ~SocketStore() override;

  [[nodiscard]] int rank() const noexcept override { return meeting_.rank; }
  [[nodiscard]] int size() const noexcept override { return meeting_.size; }
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view what,
                                                    std::string_view bytes,
                                                    std::chrono::milliseconds timeout) override;
  [[nodiscard]] std::vector<UniqueFd> exchange_fds(std::string_view what,
                                                   int fd,
                                                   std::chrono::milliseconds timeout) override;
  [[nodiscard]] PeerState peer_state(int peer) const noexcept override;
  void watch(std::function<void(int peer, PeerState state)> on_change) override;
  void leave() noexcept override;

  // For tests: the connection breaks as if the process had been killed.
  void die() noexcept;
  // Connections that rank 0's service turned away; 0 on other ranks.
  [[nodiscard]] std::uint32_t num_strangers() const noexcept;

 private:
  enum class Ending : std::uint8_t { kNone, kGoodbye, kSilent };

  struct Outgoing {
    FrameKind kind;
    std::string body;
  };

  SocketStore(const Meeting& meeting, Connection connection, const Digest& descriptor_token);

  // `timeout` is what messages say; the meeting's began before the first round.
  [[nodiscard]] std::vector<std::string> gather(std::string_view what,
                                                std::string_view bytes,
                                                std::chrono::milliseconds timeout,
                                                Deadline deadline);

  void run() noexcept;
  [[nodiscard]] bool send_outgoing();
  [[nodiscard]] bool receive();
  [[nodiscard]] bool handle(const ParsedFrame& frame);
  void change(int peer, PeerState state);
  void end(Ending ending) noexcept;

  using Lock = std::unique_lock<std::mutex>;
  void send(FrameKind kind, std::string body);  // with mutex_ held
  [[nodiscard]] bool is_settled() const;        // with mutex_ held
  [[nodiscard]] std::vector<std::string> wait_for_round(Lock& lock,
                                                        std::string_view what,
                                                        std::chrono::milliseconds timeout,
                                                        Deadline deadline);
  [[noreturn]] void fail(ErrorCode code, std::string message);  // with mutex_ held

  const Meeting meeting_;
  const Digest descriptor_token_;
  std::unique_ptr<StoreServer> server_;  // rank 0
  std::vector<std::atomic<PeerState>> states_;

  std::mutex watch_mutex_;  // held while on_change_ runs
  std::function<void(int, PeerState)> on_change_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Outgoing> outgoing_;
  Ending ending_ = Ending::kNone;
  std::uint64_t round_ = 0;
  std::optional<Gathered> gathered_;
  std::optional<Failed> fault_;  // sticky
  int lost_peer_ = -1;           // the first

  std::mutex end_mutex_;   // one joins, the others wait
  Connection connection_;  // the thread's own
  Wakeup wakeup_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ferry::boot
