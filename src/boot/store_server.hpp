#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "boot/connection.hpp"
#include "boot/gather_round.hpp"
#include "boot/socket.hpp"

namespace ferry::boot {

// The service of rank 0: takes ranks in, runs the rounds, tells everybody who died or left. One
// thread, which never waits for any one peer.
//
// Until the group has formed anybody may connect. A stranger (another uid, silent, rubbish, a wrong
// proof) is dropped and counted; connections that have not proved themselves are bounded in number
// (the oldest goes first), in bytes and in time. Once the group has formed the listener is closed:
// the address is free for the next group, and there is nothing left to connect to.
class StoreServer {
 public:
  struct Options {
    int size = 1;
    std::string address;  // for messages
    Key key{};
    bool has_secret = false;
    bool checks_uid = false;  // Unix sockets
    std::chrono::milliseconds handshake_limit{5000};
  };

  // `own` is rank 0's own connection, joined already, sealed with `own_session`.
  StoreServer(const Options& options,
              const GroupId& group_id,
              UniqueFd listener,
              UniqueFd own,
              const Session& own_session);
  ~StoreServer() { stop(); }

  // Tells the others that rank 0 left and closes their connections. Waits for no peer. Idempotent.
  void stop() noexcept;

  [[nodiscard]] std::uint32_t num_strangers() const noexcept { return num_strangers_.load(); }

 private:
  struct Peer {
    explicit Peer(UniqueFd fd) : connection(std::move(fd)) {}

    enum class Phase : std::uint8_t { kHello, kProof, kJoined, kGone };

    Connection connection;
    Phase phase = Phase::kHello;
    Deadline deadline{};  // of the handshake
    Transcript transcript;
    int rank = -1;  // once joined
  };

  void run() noexcept;
  void serve_once();
  void accept_some();
  void make_room();
  void serve(Peer& peer);
  void handle(Peer& peer, const ParsedFrame& frame);
  void handle_hello(Peer& peer, const ParsedFrame& frame);
  void handle_proof(Peer& peer, const ParsedFrame& frame);
  void handle_member(Peer& peer, const ParsedFrame& frame);
  void contribute(Peer& peer, const Contribution& contribution);
  void give_up(const Peer& peer, const GiveUp& give_up);
  void fail(const Failed& failed);
  void refuse(Peer& peer, Refusal reason, std::uint32_t expected = 0);
  void drop(Peer& peer);
  void drop_late_strangers();
  void flush_all();
  void lose(int rank, PeerState state);
  void broadcast(FrameKind kind, std::string body);
  void close_listener();

  const Options options_;
  const GroupId group_id_;
  UniqueFd listener_;
  Deadline accept_after_{};  // out of descriptors until then
  Wakeup wakeup_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::uint32_t> num_strangers_{0};

  // The server thread's own.
  std::vector<std::unique_ptr<Peer>> peers_;  // in order of arrival
  std::vector<PeerState> states_;             // by rank
  std::vector<bool> has_joined_;
  int lost_rank_ = -1;  // the first; rounds do not complete any more
  GatherRound round_;
  std::string failed_;  // encoded, once a round has failed: so do all later ones

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ferry::boot
