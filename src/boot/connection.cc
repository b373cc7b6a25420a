#include "boot/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace ferry::boot {

namespace {

constexpr std::size_t kReadBytes = 64U << 10;
constexpr int kReadsPerFill = 16;
constexpr std::size_t kPiecesPerSend = 16;

bool is_would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void Connection::start_session(const Session& session, std::size_t max_body_bytes) {
  session_ = session;
  max_body_bytes_ = max_body_bytes;
}

void Connection::queue(FrameKind kind, std::string body) {
  queue(kind, std::make_shared<const std::string>(std::move(body)));
}

void Connection::queue(FrameKind kind, std::shared_ptr<const std::string> body) {
  const bool is_sealed = session_.has_value() && kind != FrameKind::kRefused;
  std::string header = encode_header(kind, is_sealed, body->size());
  std::string tag;
  if (is_sealed) tag = encode(session_->seal(header, *body));
  unsent_.push_back({std::make_shared<const std::string>(std::move(header))});
  if (!body->empty()) unsent_.push_back({std::move(body)});
  if (is_sealed) unsent_.push_back({std::make_shared<const std::string>(std::move(tag))});
}

bool Connection::flush() {
  while (!unsent_.empty()) {
    iovec pieces[kPiecesPerSend];
    const std::size_t num_pieces = std::min(unsent_.size(), kPiecesPerSend);
    for (std::size_t i = 0; i < num_pieces; ++i) {
      const Piece& piece = unsent_[i];
      pieces[i].iov_base = const_cast<char*>(piece.bytes->data()) + piece.num_sent;
      pieces[i].iov_len = piece.bytes->size() - piece.num_sent;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = num_pieces;
    const ssize_t status = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (status < 0 && errno == EINTR) continue;
    if (status < 0) return is_would_block(errno);
    auto num_sent = static_cast<std::size_t>(status);
    while (num_sent > 0) {
      Piece& piece = unsent_.front();
      const std::size_t num_bytes = std::min(num_sent, piece.bytes->size() - piece.num_sent);
      piece.num_sent += num_bytes;
      num_sent -= num_bytes;
      if (piece.num_sent == piece.bytes->size()) unsent_.pop_front();
    }
  }
  return true;
}

bool Connection::fill() {
  received_.erase(0, num_taken_);
  num_taken_ = 0;
  // Before the proof a peer gets little of our memory: one short read at a time.
  const std::size_t read_bytes = has_session() ? kReadBytes : 2 * kMaxHandshakeBytes;
  for (int i = 0; i < (has_session() ? kReadsPerFill : 1); ++i) {
    const std::size_t num_before = received_.size();
    received_.resize(num_before + read_bytes);
    const ssize_t status =
        ::recv(fd_.get(), received_.data() + num_before, read_bytes, MSG_DONTWAIT);
    const int error = errno;
    received_.resize(num_before + static_cast<std::size_t>(std::max<ssize_t>(status, 0)));
    if (status == 0) return false;
    if (status < 0 && error != EINTR) return is_would_block(error);
    if (static_cast<std::size_t>(std::max<ssize_t>(status, 0)) < read_bytes) break;
  }
  return true;
}

ParsedFrame Connection::next() {
  ParsedFrame frame;
  if (is_bad_) return frame;
  const std::string_view rest = std::string_view(received_).substr(num_taken_);
  frame = parse_frame(rest, max_body_bytes_);
  if (frame.status == ParseStatus::kFrame) {
    const bool is_genuine = frame.is_sealed
                                ? session_ && session_->open(frame.header, frame.body, frame.tag)
                                : !session_ || frame.kind == FrameKind::kRefused;
    if (!is_genuine) frame = {};
    num_taken_ += frame.frame_bytes;
  }
  is_bad_ = frame.status == ParseStatus::kBad;
  return frame;
}

void Connection::finish_sending() noexcept { ::shutdown(fd_.get(), SHUT_WR); }

}  // namespace ferry::boot
