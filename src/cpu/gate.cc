#include "cpu/gate.hpp"

#include <algorithm>
#include <string>

#include "base/log.hpp"

namespace ferry::cpu {

namespace {

using layout::ControlBlock;
using layout::Operation;
using layout::OperationHeader;
using layout::OperationShape;
using layout::OperationWords;

// A sleeping waiter looks up this often by itself: at peers' states, deadlines and the late
// warning.
constexpr std::chrono::milliseconds kLongestSleep{50};

const char* what_is_missing(Word word) {
  switch (word) {
    case Word::kPublished: return "to reach it";
    case Word::kMoved: return "to send its rows";
    case Word::kAcknowledged: return "to finish reading this rank's rows";
    case Word::kLlDispatchConsumed:
    case Word::kLlCombineConsumed: return "to empty its low-latency region";
  }
  return "";
}

}  // namespace

Gate::Gate(boot::Store& store,
           memory::GroupSegments& segments,
           memory::Arena& arena,
           const Deadlines& deadlines)
    : store_(store),
      segments_(segments),
      arena_(arena),
      deadlines_(deadlines),
      arrival_timeout_(deadlines.arrival),
      rank_(store.rank()),
      num_ranks_(store.size()),
      wait_ns_by_peer_(static_cast<std::size_t>(store.size()), 0),
      progress_(static_cast<std::size_t>(store.size())) {
  for (int peer = 0; peer < num_ranks_; ++peer)
    if (peer != rank_) all_peers_.push_back(peer);
}

ControlBlock& Gate::own_control() noexcept {
  return *reinterpret_cast<ControlBlock*>(arena_.base());
}

const ControlBlock& Gate::control_of(int peer) const {
  return *reinterpret_cast<const ControlBlock*>(arena_.base_of(peer));
}

const OperationWords& Gate::words_of(int peer, std::uint64_t sequence) const {
  return control_of(peer).headers[sequence % ControlBlock::kRing].words;
}

void Gate::set_arrival_timeout(std::chrono::milliseconds timeout) noexcept {
  arrival_timeout_ = timeout.count() > 0 ? timeout : deadlines_.arrival;
}

void Gate::check_alive() {
  if (const auto fault = segments_.fault()) throw_error(fault->code(), fault->what());
  for (const int peer : all_peers_) {
    if (store_.peer_state(peer) != boot::PeerState::kLeft) continue;
    segments_.raise_fault(ErrorCode::kPeerLost, fmt::format("rank {} left the group", peer));
    const auto fault = segments_.fault();
    throw_error(ErrorCode::kPeerLost,
                fault ? fault->what() : fmt::format("rank {} left the group", peer));
  }
}

std::uint64_t Gate::publish(const OperationShape& shape, const OperationWords& words) {
  const std::uint64_t sequence = sequence_ + 1;
  if (sequence > 2) advance(sequence - 2);
  OperationHeader& header = own_control().headers[sequence % ControlBlock::kRing];
  header.shape = shape;
  header.words = words;
  operations_[sequence % ControlBlock::kRing] = Operation{shape.operation};
  sequence_ = sequence;
  has_warned_ = false;
  // Pairs with the acquire load in load(): a peer that reads this number also reads the header and,
  // for a route, the counts.
  header.sequence.store(sequence, std::memory_order_release);
  segments_.notify_all();
  return sequence;
}

void Gate::pass(std::uint64_t sequence) {
  advance(sequence);
  const auto refused = refused_.find(sequence);
  if (refused == refused_.end()) return;
  const Error error = refused->second;
  refused_.erase(refused);
  throw_error(error.code(), error.what());
}

// Waits for all headers up to `sequence` and compares each while its ring slot still stands.
void Gate::advance(std::uint64_t sequence) {
  for (std::uint64_t next = passed_ + 1; next <= sequence; ++next) {
    wait_all(Word::kPublished, next, next);
    passed_ = next;
    try {
      check_agreement(next);
    } catch (const Error& error) {
      if (segments_.has_fault()) throw;
      refused_.emplace(next, error);
    }
  }
}

void Gate::check_agreement(std::uint64_t sequence) {
  const std::size_t index = sequence % ControlBlock::kRing;
  // Against rank 0, so that every rank names the same pair.
  const OperationShape& reference = control_of(0).headers[index].shape;
  for (int peer = 1; peer < num_ranks_; ++peer) {
    const OperationShape& shape = control_of(peer).headers[index].shape;
    if (shape.operation == reference.operation) continue;
    const std::string text = fmt::format(
        "operation {} differs between ranks: rank 0 calls {}, rank {} calls {}; every rank must "
        "issue the same operations in the same order",
        sequence, layout::operation_name(Operation{reference.operation}), peer,
        layout::operation_name(Operation{shape.operation}));
    segments_.raise_fault(ErrorCode::kInvalidArgument, text);
    throw_error(ErrorCode::kInvalidArgument, text);
  }
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const OperationWords& words = control_of(peer).headers[index].words;
    if (words.error_code != 0) throw_error(ErrorCode{words.error_code}, words.error_text);
  }
  for (int peer = 1; peer < num_ranks_; ++peer) {
    const OperationShape& shape = control_of(peer).headers[index].shape;
    const std::string difference = engine::first_difference(reference, shape);
    FERRY_CHECK(difference.empty(), ErrorCode::kInvalidArgument,
                "{} (operation {}) differs between rank 0 and rank {}: {}",
                layout::operation_name(Operation{reference.operation}), sequence, peer, difference);
  }
}

std::uint64_t Gate::load(Word word, int peer, std::uint64_t target) const noexcept {
  const ControlBlock& control = control_of(peer);
  switch (word) {
    case Word::kPublished:
      return control.headers[target % ControlBlock::kRing].sequence.load(std::memory_order_acquire);
    case Word::kMoved: return control.moved.load(std::memory_order_acquire);
    case Word::kAcknowledged: return control.acknowledged.load(std::memory_order_acquire);
    case Word::kLlDispatchConsumed:
      return control.ll_dispatches_consumed.load(std::memory_order_acquire);
    case Word::kLlCombineConsumed:
      return control.ll_combines_consumed.load(std::memory_order_acquire);
  }
  return 0;
}

bool Gate::has_reached(int peer, std::uint64_t sequence) const noexcept {
  return load(Word::kPublished, peer, sequence) >= sequence;
}

void Gate::wait(Word word,
                std::uint64_t target,
                std::uint64_t sequence,
                const std::vector<int>& peers) {
  std::vector<int> missing;
  for (const int peer : peers)
    if (peer != rank_ && load(word, peer, target) < target) missing.push_back(peer);
  if (missing.empty()) return;

  const Clock::time_point start = Clock::now();
  for (const int peer : missing)
    progress_[static_cast<std::size_t>(peer)] = {
        control_of(peer).progress.load(std::memory_order_relaxed), start};
  int last = missing.front();
  memory::GroupSegments::Waiter waiter(segments_);
  for (;;) {
    const std::uint32_t ticket = waiter.ticket();
    std::erase_if(missing, [&](int peer) {
      if (load(word, peer, target) < target) return false;
      last = peer;
      return true;
    });
    if (missing.empty()) break;
    if (segments_.has_fault()) throw_fault(word, sequence, missing.front());
    for (const int peer : missing) {
      // A peer that left had stored its words before it said goodbye: look once more.
      if (store_.peer_state(peer) == boot::PeerState::kAlive) continue;
      if (load(word, peer, target) >= target) continue;
      segments_.raise_fault(ErrorCode::kPeerLost,
                            store_.peer_state(peer) == boot::PeerState::kLeft
                                ? fmt::format("rank {} left the group", peer)
                                : fmt::format("rank {} was lost: its process ended", peer));
      throw_fault(word, sequence, peer);
    }
    check_deadlines(word, target, sequence, missing, start);
    waiter.pause(ticket, kLongestSleep);
  }
  const auto waited =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  wait_ns_ += waited;
  wait_ns_by_peer_[static_cast<std::size_t>(last)] += waited;
}

void Gate::throw_fault(Word word, std::uint64_t sequence, int peer) {
  const auto fault = segments_.fault();
  FERRY_CHECK_INTERNAL(fault.has_value(), "rank {} reports a fault without a record", rank_);
  throw_error(
      fault->code(),
      fmt::format("{} (rank {} was in {}, operation {}, waiting for rank {} {})", fault->what(),
                  rank_, layout::operation_name(operations_[sequence % ControlBlock::kRing]),
                  sequence, peer, what_is_missing(word)));
}

void Gate::check_deadlines(Word word,
                           std::uint64_t target,
                           std::uint64_t sequence,
                           const std::vector<int>& missing,
                           Clock::time_point start) {
  const Clock::time_point now = Clock::now();
  const char* operation = layout::operation_name(operations_[sequence % ControlBlock::kRing]);
  for (const int peer : missing) {
    Progress& progress = progress_[static_cast<std::size_t>(peer)];
    const bool is_late = !has_reached(peer, sequence);
    const std::uint64_t value = control_of(peer).progress.load(std::memory_order_relaxed);
    // A peer that is late for the operation has the arrival deadline; its progress clock starts
    // when it arrives.
    if (is_late || value != progress.value) progress = {value, now};
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - start);
    if (is_late && waited > deadlines_.late_warning && !has_warned_) {
      has_warned_ = true;
      FERRY_WARN("cpu.gate", "waiting {} ms for rank {} to reach {} (operation {})", waited.count(),
                 peer, operation, sequence);
    }
    const bool is_over =
        is_late ? waited > arrival_timeout_ : now - progress.changed > deadlines_.progress;
    if (!is_over) continue;
    segments_.raise_fault(
        ErrorCode::kTimeout,
        fmt::format(
            "rank {} timed out after {} ms in {} (operation {}): rank {} {} {}; expected {}, "
            "seen {}; try: look at rank {}, or raise {}",
            rank_, is_late ? arrival_timeout_.count() : deadlines_.progress.count(), operation,
            sequence, peer, is_late ? "is alive and failed" : "stopped and failed",
            what_is_missing(word), target, load(word, peer, target), peer,
            is_late ? "FERRY_TIMEOUT_MS" : "FERRY_PROGRESS_TIMEOUT_MS"));
    const auto fault = segments_.fault();
    if (fault) throw_error(fault->code(), fault->what());
  }
}

void Gate::announce(Word word, std::uint64_t value) {
  ControlBlock& control = own_control();
  switch (word) {
    case Word::kPublished:
      break;  // publish() does that
    // Each pairs with the acquire load of the same word in load().
    case Word::kMoved: control.moved.store(value, std::memory_order_release); break;
    case Word::kAcknowledged: control.acknowledged.store(value, std::memory_order_release); break;
    case Word::kLlDispatchConsumed:
      control.ll_dispatches_consumed.store(value, std::memory_order_release);
      break;
    case Word::kLlCombineConsumed:
      control.ll_combines_consumed.store(value, std::memory_order_release);
      break;
  }
  segments_.notify_all();
}

void Gate::tick_progress() noexcept {
  own_control().progress.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ferry::cpu
