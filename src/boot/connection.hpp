#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"
#include "boot/proof.hpp"
#include "boot/wire.hpp"

namespace ferry::boot {

// One end of a store connection: frames over a non-blocking stream socket. Never waits. One thread
// at a time.
class Connection {
 public:
  explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  // From the next frame on, both ways, frames are sealed and may be as large as `max_body_bytes`;
  // only kRefused still passes in the clear.
  void start_session(const Session& session, std::size_t max_body_bytes);
  [[nodiscard]] bool has_session() const noexcept { return session_.has_value(); }

  // Hands a frame to the next flush().
  void queue(FrameKind kind, std::string body = {});
  void queue(FrameKind kind, std::shared_ptr<const std::string> body);
  // Sends what the socket takes. False: the connection is gone.
  [[nodiscard]] bool flush();
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }

  // Receives what is there, up to a bound, so that one peer cannot keep its reader busy. False: the
  // peer closed; frames that came before it are still to be taken.
  [[nodiscard]] bool fill();

  // The next whole frame; its views are valid until the next fill() or next(). kBad, for good, when
  // the bytes are no frame or the tag does not fit.
  [[nodiscard]] ParsedFrame next();

  void close() noexcept { fd_.reset(); }
  // Ends the sending side: the peer reads everything that was flushed, then the end.
  void finish_sending() noexcept;

 private:
  UniqueFd fd_;
  std::optional<Session> session_;
  std::size_t max_body_bytes_ = kMaxHandshakeBytes;

  struct Piece {
    std::shared_ptr<const std::string> bytes;
    std::size_t num_sent = 0;
  };
  std::deque<Piece> unsent_;

  std::string received_;
  std::size_t num_taken_ = 0;  // bytes of received_ that next() has given out
  bool is_bad_ = false;
};

}  // namespace ferry::boot
