#include "rpc/port/byte_session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "pipe/null_sink.h"
#include "transport/common/unsent_source.h"

namespace hawser::rpc {
namespace {

// Checks of the backlog in which the peer took nothing, after which the connection ends.
constexpr unsigned stuck_checks_max = 2;
constexpr Duration stuck_interval_max = std::chrono::hours(1);

// The time in which a peer that has ended its direction must take a byte.
Duration rest_interval(Duration half_closed_max, const ServerOptions& options) noexcept {
  if (half_closed_max != Duration::zero()) return half_closed_max;
  constexpr Duration interval_max = std::chrono::hours(1);
  return std::min(options.ping_interval, interval_max);
}

Error closed_error() { return Error::of_connection(ErrorCode::unavailable, "the session has closed"); }

}  // namespace

ByteSession::ByteSession(PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first)
    : PortSession(host, stream->peer(), stream->identity()),
      stream_(std::move(stream)),
      receive_peer_(host.receive_peers.find(peer_name())),
      account_(&host.budget, receive_peer_.get()),
      send_mark_(account_, &host.counters.unsent_bytes),
      first_(Buffer::copy_of(first)),
      block_charge_(account_),
      rest_(*this),
      life_(*this) {
  want_mark();
}

ByteSession::~ByteSession() {
  host().loop.remove_tick_end(*this);
  host().memory_queue.remove(*this);
  stream_.close_now();
  drop_block();
}

void ByteSession::on_start() {
  const Buffer first = std::exchange(first_, {});
  log_opened("a byte stream");
  stream_->set_sink(*this);
  if (!make_room()) return;
  std::memcpy(block_.space().data(), first.data(), first.size());
  block_.received(first.size());
  arrived_ = first.size();
  take_all();
  park();
  update_reading();
}

// ---- Receiving ----

void ByteSession::drop_block() noexcept {
  block_.drop();
  block_charge_.set_always(0);
  host().memory_queue.passed(*this);
}

// The size of the block that has room behind the bytes that are not taken yet.
std::size_t ByteSession::room_bytes() const noexcept {
  const std::size_t held = block_.held();
  if (block_.has_room(held + receive_block_bytes / 4)) return block_.size();
  return held < receive_block_bytes / 2 ? receive_block_bytes : 2 * held;
}

// Ensures that block_ has that room. False: there is no memory, or the session has ended.
bool ByteSession::make_room() {
  if (block_.fit(block_.held() + receive_block_bytes / 4)) return true;
  const std::size_t size = room_bytes();
  if (size > receive_block_bytes && !block_charge_.set(size)) {
    if (!may_exceed()) return false;
    block_charge_.set_always(size);
  }
  try {
    block_.replace(size);
  } catch (const std::bad_alloc&) {
    fail_connection();
    return false;
  }
  return true;
}

// A message is complete that exceeded the limits. What remains is the beginning of another one: see receive_space().
void ByteSession::stop_exceeding() noexcept {
  try {
    block_.park(SIZE_MAX);
  } catch (const std::bad_alloc&) {
    return fail_connection();
  }
  block_charge_.set_always(block_.size() > receive_block_bytes ? block_.size() : 0);
  host().memory_queue.passed(*this);
}

// The connection is not read until there is memory for the rest of its message.
void ByteSession::wait_to_receive() noexcept {
  if (closed()) return;
  pauses_.add(pipe::PauseReason::memory);
  try {
    if (!host().memory_queue.add(*this)) return end_session(unkept_error(account_));
  } catch (const std::bad_alloc&) {
    return fail_connection();
  }
  if (std::exchange(read_paused_, true)) return;
  stream_->pause();
  park();
}

bool ByteSession::try_to_receive(bool beyond) noexcept {
  // It would keep others from it, and would not be read.
  if (beyond && pauses_.has_other_than(pipe::PauseReason::memory)) return false;
  const std::size_t size = room_bytes();
  // It has waited although its block may be charged already.
  const std::size_t held = block_charge_.bytes();
  block_charge_.set_always(0);
  if (beyond) {
    block_charge_.set_always(size);
  } else if (!block_charge_.set(size)) {
    block_charge_.set_always(held);
    return false;
  }
  pauses_.remove(pipe::PauseReason::memory);
  take_all();
  update_reading();
  return true;
}

MutableBytes ByteSession::receive_space() {
  direct_ = false;
  if (closed() || finishing()) return pipe::discard_buffer();
  if (block_.empty()) {
    const MutableBytes direct = direct_space();
    direct_ = !direct.empty();
    if (direct_) return direct;
    if (closed()) return pipe::discard_buffer();
  }
  if (!make_room()) {
    if (!closed()) end_session(unkept_error(account_));
    return pipe::discard_buffer();
  }
  // Behind a message that exceeds the limits, and while others are answered first, little of the next one is received:
  // its memory would not be free until it is complete.
  const MutableBytes space = block_.space();
  const bool little = pauses_.any() || may_exceed();
  return little ? space.first(std::min(space.size(), receive_block_bytes)) : space;
}

void ByteSession::received(std::size_t bytes) {
  if (closed()) return;
  if (bytes == 0) return park();
  arrived_ += bytes;
  if (finishing()) return;
  if (std::exchange(direct_, false)) {
    try {
      direct_received(bytes);
    } catch (const std::exception&) {
      fail_connection();
    }
  } else {
    block_.received(bytes);
  }
  take_all();
  update_reading();
}

void ByteSession::take_all() noexcept {
  if (std::exchange(taking_, true)) return;
  bool passes = false;
  while (!block_.empty() && may_take()) {
    std::size_t taken = 0;
    try {
      taken = take(block_.bytes(), *block_.block());
    } catch (const std::exception&) {
      fail_connection();
    }
    if (taken == 0) break;
    block_.take(taken);
    passes = may_exceed();
    if (turn_over(taken)) break;
  }
  taking_ = false;
  if (closed() || finishing() || block_.empty()) return drop_block();
  if (passes) stop_exceeding();
}

// Counts `bytes`, which the protocol has taken. True if the turn has ended and continues in a later tick.
bool ByteSession::turn_over(std::size_t bytes) {
  Loop& loop = host().loop;
  if (!turn_.add_message(bytes) || closed() || !turn_.over(loop)) return false;
  pauses_.add(pipe::PauseReason::turn);
  rest_.start(loop, loop.now());
  return true;
}

void ByteSession::continue_turn() {
  pauses_.remove(pipe::PauseReason::turn);
  take_all();
  update_reading();
}

// Called when nothing arrives for the time being.
void ByteSession::park() {
  if (taking_ || closed()) return;
  if (block_.empty()) return drop_block();
  // A connection that is not read does not keep memory for what it would receive: it may wait for that memory.
  const bool waits_longer = read_paused_ && pauses_.has_other_than(pipe::PauseReason::turn);
  const bool shrinks = waits_longer && block_.size() > receive_block_bytes;
  try {
    block_.park(shrinks ? SIZE_MAX : pipe::ReceiveBlock::parked_bytes_max);
  } catch (const std::bad_alloc&) {
    // It keeps its block.
  }
  if (block_charge_.set(block_.size())) return;
  const bool waits = pauses_.has(pipe::PauseReason::memory) || may_exceed();
  if (!waits && block_.held() > pipe::ReceiveBlock::parked_bytes_max) wait_to_receive();
  // The memory is bounded by the number of connections, or by the places in the queue. A block may be twice as long as
  // the memory that has been charged for it.
  if (!closed()) block_charge_.set_always(block_.size());
}

void ByteSession::update_reading() {
  if (closed() || taking_) return;
  if (state_.peer_ended()) {
    if (!may_take()) return;
    on_peer_end();
    if (!closed() && !replies_due()) finish();
    return;
  }
  const bool reads_more = !block_.empty() && !finishing() && !pauses_.any();
  if (reads_more && !make_room()) return wait_to_receive();
  const bool ahead = pauses_.has(pipe::PauseReason::hold) && block_.held() >= ahead_bytes_max;
  const bool stop = !finishing() && (pauses_.has_other_than(pipe::PauseReason::hold) || ahead);
  if (stop == std::exchange(read_paused_, stop)) return;
  if (stop) {
    stream_->pause();
    park();
  } else {
    stream_->resume();
  }
}

void ByteSession::pause() {
  pauses_.add(pipe::PauseReason::protocol);
  update_reading();
}

void ByteSession::resume() {
  pauses_.remove(pipe::PauseReason::protocol);
  take_all();
  update_reading();
}

void ByteSession::release() {
  if (!pauses_.has(pipe::PauseReason::hold)) return;
  pauses_.remove(pipe::PauseReason::hold);
  take_all();
  update_reading();
}

// ---- Sending ----

void ByteSession::write(Bytes bytes) {
  if (bytes.empty()) return;
  std::memcpy(reserve(bytes.size()), bytes.data(), bytes.size());
  commit(bytes.size());
}

void ByteSession::borrow(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  if (closed() || pieces.empty()) {
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  queue().borrow(pieces, owner);
  queued_more();
}

void ByteSession::queued_more() {
  if (closed()) return queue().clear();
  if (stream_.early()) {
    send_queued();
    if (closed()) return;
    send_mark_.charge(backlog());
  }
  send_mark_.on_commit(backlog());
  if (send_mark_.passed() && !above_mark()) {
    compare_with_mark();
    update_reading();
  }
  if (!queued() && (above_mark() || backlog() != 0)) host().loop.at_tick_end(*this);
}

void ByteSession::flush() {
  if (stream_.sending() || closed()) return;
  send_queued();
  if (closed()) return;
  send_mark_.charge(backlog());
  drained();
  if (closed()) return;
  if (finishing() && !state_.finished() && backlog() == 0 && !occupied()) {
    state_.finish_sent();
    stream_->finish();
    stuck_.begin(transport::unsent_of(stream_.get()));
    if (state_.peer_ended() && stuck_.value() == 0) return end_session(closed_error());
    life_.start(host().loop, host().loop.after(linger_max));
  }
  watch_backlog();
}

void ByteSession::sendable(std::size_t bytes) {
  if (closed()) return;
  stream_.sendable(bytes);
  flush();
}

// Sets or removes the pause for the backlog.
void ByteSession::compare_with_mark() noexcept {
  if (send_mark_.passed()) {
    pauses_.add(pipe::PauseReason::backlog);
  } else {
    pauses_.remove(pipe::PauseReason::backlog);
  }
}

void ByteSession::renew_mark() {
  if (closed()) return;
  want_mark();
  if (send_mark_.passed() == above_mark()) return;
  compare_with_mark();
  update_reading();
}

void ByteSession::drained() {
  if (closed() || !send_mark_.on_sent(backlog())) return;
  compare_with_mark();
  on_drained();
  take_all();
  update_reading();
}

void ByteSession::options_changed() {
  if (closed()) return;
  want_mark();
  compare_with_mark();
  if (!above_mark()) {
    // Whoever waited for the previous mark continues.
    on_drained();
    take_all();
  }
  if (closed()) return;
  update_reading();
  if (state_.finished() || state_.peer_ended()) return;  // The timer has another purpose then.
  life_.stop();
  watch_backlog();
}

void ByteSession::watch_backlog() {
  constexpr Duration interval_max = std::chrono::hours(24 * 365 * 10);
  if (!stream_.blocked() || life_.running() || host().options.ping_interval > interval_max) return;
  stuck_.begin(stream_.sent());
  life_.start(host().loop, host().loop.after(host().options.ping_interval));
}

void ByteSession::check_life() {
  if (closed()) return;
  if (state_.finished()) return check_end();
  if (state_.peer_ended()) {
    if (stuck_.check(stream_.sent()) != 0) {
      return end_session(Error::of_connection(
          Initiator::peer, ErrorCode::unavailable,
          "the peer ended its direction, and nothing could be sent to it for the time after that"));
    }
    return life_.start(host().loop, host().loop.after(rest_interval(half_closed_max(), host().options)));
  }
  if (!stream_.blocked()) return;
  if (stuck_.check(stream_.sent()) >= stuck_checks_max) {
    return end_session(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                                            "the peer has not taken a byte for two ping intervals"));
  }
  life_.start(host().loop, host().loop.after(host().options.ping_interval));
}

// After the end has been passed to the stream. TLS may hold encrypted bytes that the socket has no room for.
void ByteSession::check_end() {
  const std::size_t unsent = transport::unsent_of(stream_.get());
  if (unsent == 0 && (stuck_.value() == 0 || state_.peer_ended())) return end_session(closed_error());
  const unsigned checks = stuck_.check(unsent);
  const Duration most = state_.peer_ended()
                            ? rest_interval(half_closed_max(), host().options)
                            : stuck_checks_max * std::min(host().options.ping_interval, stuck_interval_max);
  if (checks * linger_max >= most) {
    return end_session(Error::of_connection(
        Initiator::peer, ErrorCode::unavailable,
        "the peer has taken none of the last " + count_text(unsent, "byte") + " for " +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(most).count()) + " s"));
  }
  life_.start(host().loop, host().loop.after(linger_max));
}

// Sends replies that are finished before the session ends. True if it takes longer: it ends when they are sent.
bool ByteSession::sends_rest() {
  send_queued();
  const bool answering = pauses_.has(pipe::PauseReason::hold) && (!finishing() || occupied());
  if (closed() || answering || calls().unanswered() != 0) return false;
  if (backlog() == 0 && transport::unsent_of(stream_.get()) == 0) return false;
  state_.end_peer();
  finish();
  stuck_.begin(stream_.sent());
  life_.start(host().loop, host().loop.after(rest_interval(half_closed_max(), host().options)));
  return true;
}

// The peer may have closed the connection, or may wait for its replies.
bool ByteSession::continues_after_end() {
  if (closed()) return false;
  if (state_.finished()) {
    // check_end() waits for the rest.
    if (transport::unsent_of(stream_.get()) == 0) return false;
    state_.end_peer();
    return true;
  }
  if (half_closed_max() == Duration::zero()) return sends_rest();
  const bool due = finishing() || pauses_.has_other_than(pipe::PauseReason::protocol) || backlog() != 0 ||
                   replies_due() || occupied() || transport::unsent_of(stream_.get()) != 0;
  if (!due) return false;
  state_.end_peer();
  stuck_.begin(stream_.sent());
  life_.start(host().loop, host().loop.after(half_closed_max()));
  park();
  update_reading();
  return true;
}

void ByteSession::finish() {
  if (closed() || finishing()) return;
  state_.finish();
  begin_ending();
  host().memory_queue.remove(*this);
  pauses_.remove(pipe::PauseReason::memory);
  if (!taking_) drop_block();
  if (!queued()) host().loop.at_tick_end(*this);
  on_finish();
  update_reading();
}

bool ByteSession::leave() {
  if (closed() || finishing()) return true;
  const bool idle = waits_for_peer() && !receiving();
  if (quiet_.check(host().loop.now(), idle, arrived_ + stream_.sent()) < quiet_min) return false;
  finish();
  return true;
}

// ---- The peer's pace ----

unsigned ByteSession::silent_checks() noexcept {
  return silence_.check(arrived_ + stream_.sent(), !closed() && waits_for_peer());
}

void ByteSession::end_if_slow(std::uint64_t bytes) {
  if (closed()) return;
  const pipe::PeerPace::Behind behind = pace_.check({.receiving = receiving(),
                                                     .pause = read_paused_ ? pauses_.pause() : pipe::ReadPause::none,
                                                     .messages = messages_,
                                                     .arrived = arrived_,
                                                     .sent = stream_.sent(),
                                                     .backlog = backlog() + send_mark_.waiting()},
                                                    bytes, account_);
  if (behind == pipe::PeerPace::Behind::no) return;
  const Error why = slow_error(behind, bytes, account_);
  if (behind == pipe::PeerPace::Behind::taking || !answer_slow(why)) end_session(why);
}

// ---- The end ----

void ByteSession::protocol_error(std::string text) {
  if (closed()) return;
  host().counters.protocol_errors.add(1);
  end_session(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

void ByteSession::fail_connection() noexcept {
  end_session(Error::of_connection(ErrorCode::internal, "out of memory"));
}

void ByteSession::end_session(const Error& why) {
  if (closed()) return;
  life_.stop();
  rest_.stop();
  host().loop.remove_tick_end(*this);
  host().memory_queue.remove(*this);
  state_.close();
  stream_.close(host().loop);
  begin_ending();
  log_closed(why);
  queue().clear();
  send_mark_.clear();
  if (!taking_) drop_block();
  account_.set_arriving(0);
  try {
    cancel_calls(
        Error::of_connection(why.initiator, ErrorCode::cancelled, "the caller's connection ended: " + why.text));
  } catch (const std::bad_alloc&) {
    // The calls end by themselves, or when the server ends.
  }
  try {
    on_end(why);
  } catch (const std::bad_alloc&) {
    // The protocol releases what it holds when the session is destroyed.
  }
  check_idle();
}

void ByteSession::check_idle() {
  if (active_calls() != 0 || occupied()) return;
  if (closed()) {
    notify_idle();
  } else {
    on_no_calls();
  }
}

}  // namespace hawser::rpc
