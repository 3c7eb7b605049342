#include "rpc/session/session.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "hawser/detail/loop_access.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "rpc/session/memory_frames.h"
#include "wire/message.h"

namespace hawser::rpc {

Session::Session(Loop& loop, std::unique_ptr<transport::Connection> connection, const SessionSettings& settings)
    : loop_(loop),
      settings_(settings),
      account_(settings.budget, settings.peer.get()),
      connection_(std::move(connection)),
      backlog_(loop, *connection_, *this,
               {.account = account_, .budget = settings.budget, .total = settings.unsent_bytes},
               settings.backlog_bytes_max),
      rest_(*this),
      peer_life_(loop.now()),
      life_timer_(*this) {}

Session::~Session() = default;

void Session::release_connection() noexcept {
  guard_.reset();
  connection_.reset();
}

void Session::start_session() {
  connection_->set_high_watermark(backlog_.mark());
  start_pings();
  if (guard_ != nullptr) return guard_->start();
  connection_->start(*this);
}

void Session::start_pings() {
  // The limit is longer than any connection lives, and far enough from the end of time that it can be doubled.
  constexpr Duration ping_interval_max = std::chrono::hours(24 * 365 * 10);
  if (settings_.ping_interval > ping_interval_max) return;
  peer_life_.begin(loop_.now(), settings_.ping_interval);
  life_timer_.start(loop_, peer_life_.due());
}

void Session::change_settings(std::size_t backlog_bytes_max, Duration ping_interval) {
  if (closed()) return;
  backlog_.change_max(backlog_bytes_max);
  if (closed() || std::exchange(settings_.ping_interval, ping_interval) == ping_interval) return;
  life_timer_.stop();
  start_pings();
}

void Session::require_proof(std::unique_ptr<transport::PathProof> proof, Time deadline) {
  guard_ = std::make_unique<negotiate::PathGuard>(loop_, *connection_, *this, std::move(proof), deadline);
}

// ---- Sending ----

std::byte* Session::begin_described(std::size_t body_bytes, std::size_t payload_bytes, const Metadata& metadata) {
  wire::MetadataSize size;
  for (const auto& [key, value] : metadata) size.add(key, value);
  if (!size.fits()) {
    not_begun_ = size;
    return nullptr;
  }
  std::byte* at = begin_bare(size.bytes() + body_bytes, payload_bytes);
  if (at == nullptr) return nullptr;
  for (const auto& [key, value] : metadata) at = wire::write_metadata_entry(at, key, value);
  return at;
}

std::byte* Session::not_begun(std::size_t bytes) noexcept {
  if (bytes > settings_.agreed.send_bytes_max) {
    not_begun_ = bytes;
  } else {
    not_begun_ = std::monostate();
  }
  return nullptr;
}

void Session::end_unsent(SendCompletion* owner) {
  if (owner != nullptr) owner->on_send_complete();
  end_session(Error::of_connection(ErrorCode::internal, "out of memory"));
}

Error Session::begin_error() const {
  if (const auto* const size = std::get_if<wire::MetadataSize>(&not_begun_)) {
    return Error::of_call(ErrorCode::limit_exceeded, size->too_large_text());
  }
  if (const auto* const bytes = std::get_if<std::size_t>(&not_begun_)) {
    return Error::of_call(ErrorCode::limit_exceeded,
                          wire::too_long_text(*bytes + wire::MessagePrefix::bytes,
                                              settings_.agreed.send_bytes_max + wire::MessagePrefix::bytes));
  }
  return Error::of_connection(ErrorCode::not_sent, "the connection has ended");
}

std::size_t Session::filled_bytes(std::size_t body_bytes) const noexcept {
  const std::size_t room =
      settings_.agreed.send_bytes_max - std::min(settings_.agreed.send_bytes_max, wire::header_bytes);
  return std::min({body_bytes, transport::transport_probe_bytes_max, room});
}

std::byte* Session::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
  return begin_frame(wire::StreamDataFrame{.call = wire::CallId::from_number(call)}, size.body, size.payload);
}

void Session::send_end(std::uint32_t call) { send_bare(wire::StreamEndFrame{.call = wire::CallId::from_number(call)}); }

void Session::send_credit(std::uint32_t call, std::uint32_t bytes) {
  send_bare(wire::CreditFrame{.call = wire::CallId::from_number(call), .bytes = bytes});
}

// ---- Receiving ----

void Session::on_message(const transport::Message& message) {
  if (closed()) return;
  try {
    if (turn_.add_message(message.head.size())) [[unlikely]]
      return deliver_timed(message);
    deliver(message);
  } catch (const std::bad_alloc&) {
    end_without_memory();
  }
}

// Between two readings of the clock, a turn delivers some tens of small messages. A large message is timed by itself.
void Session::deliver_timed(const transport::Message& message) {
  turn_.begin(loop_);
  deliver(message);
  if (closed() || !turn_.over(loop_)) return;
  connection_->pause();
  rest_.start(loop_, loop_.now());
}

// on_drained() resumes a connection that waits until its peer reads.
void Session::end_rest() noexcept {
  if (!closed() && !held_) connection_->resume();
}

void Session::hold() noexcept {
  held_ = true;
  if (!connection_->paused()) connection_->pause();
}

// Apart from deliver(), whose registers it would take up.
[[gnu::cold, gnu::noinline]] void Session::refuse_frame(std::string_view what, wire::FrameKind kind,
                                                        std::string_view why) {
  protocol_error(std::string(what) + std::string(to_string(kind)) + std::string(why));
}

[[gnu::always_inline]] inline void Session::deliver(const transport::Message& message) {
  peer_life_.on_message(loop_.now());
  if (message.cut) [[unlikely]]
    return on_cut_message(message);
  Result<wire::Frame> frame =
      wire::decode_frame(message.head, message.payload, message.discarded ? SIZE_MAX : message.payload.size());
  if (!frame) [[unlikely]]
    return protocol_error(frame.error().text);
  if (settings_.agreed.checksum && !message.discarded && !wire::checksum_matches(message.head, message.payload))
      [[unlikely]] {
    return refuse_frame("the checksum of a ", frame->kind, " frame does not match: the frame was damaged on its way");
  }
  if (!frame->metadata.empty() && !wire::check_metadata(frame->metadata)) [[unlikely]]
    return refuse_frame("malformed metadata in a ", frame->kind, " frame");
  switch (frame->kind) {
    case wire::FrameKind::ping: return answer_ping(frame->body.size());
    case wire::FrameKind::pong: return on_pong(frame->body.size());
    default: return on_frame(*frame, message);
  }
}

void Session::on_cut_message(const transport::Message& message) {
  const Result<wire::Frame> frame = wire::decode_cut_frame(message.head);
  if (!frame) return protocol_error(frame.error().text);
  if (frame->kind == wire::FrameKind::ping || frame->kind == wire::FrameKind::pong) {
    return protocol_error(std::string(to_string(frame->kind)) +
                          " frame whose body does not fit into the memory for received data (receive_bytes_max)");
  }
  on_frame(*frame, message);
}

void Session::answer_ping(std::size_t body_bytes) {
  if (pongs_.answered(body_bytes, connection_->sent())) return;
  send_filled(wire::PongFrame{}, body_bytes);
  pongs_.add(body_bytes, connection_->committed());
}

// ---- Memory ----

detail::MemoryFrames& Session::memory() {
  if (memory_ == nullptr) memory_ = std::make_unique<detail::MemoryFrames>(*this);
  return *memory_;
}

void Session::on_memory_frame(const wire::MemoryFrame& request, const wire::Frame& frame,
                              const transport::Message& message) {
  if (!memory().on_request(request, frame, message)) protocol_error("malformed MEMORY frame");
}

void Session::on_memory_frame(const wire::MemoryReplyFrame& reply, const wire::Frame& frame,
                              const transport::Message& message) {
  if (!memory().on_reply(reply, frame, message)) {
    protocol_error("MEMORY_REPLY for an access (" + to_string(reply.call) +
                   ") which is not in progress, or of the wrong length");
  }
}

std::optional<transport::ReceiveBuffer> Session::select_memory(const wire::Frame& frame, std::size_t payload_bytes) {
  if (frame.kind != wire::FrameKind::memory && frame.kind != wire::FrameKind::memory_reply) return std::nullopt;
  return memory().select(frame, payload_bytes);
}

// Writers that find no room wait again, in the same order.
void Session::on_drained() {
  detail::WaitingWriter woken;
  woken.take_all(writers_);
  while (woken.linked() && !closed()) {
    detail::WaitingWriter& first = *woken.next();
    first.unlink();
    detail::StreamCore::on_room(first);
  }
  held_ = false;
  if (!closed() && memory_ != nullptr) memory_->on_drained();
  if (!closed() && connection_->paused() && !rest_.running()) connection_->resume();
}

pipe::PeerPace::Behind Session::falls_behind(std::uint64_t bytes) noexcept {
  if (closed()) return pipe::PeerPace::Behind::no;
  using pipe::ReadPause;
  return pace_.check({.receiving = account_.arriving() != 0,
                      .pause = !connection_->paused() ? ReadPause::none
                               : held_                ? ReadPause::for_peer
                                                      : ReadPause::own,
                      .messages = turn_.work(),
                      .arrived = connection_->arrived(),
                      .sent = connection_->sent(),
                      .backlog = connection_->backlog()},
                     bytes, account_);
}

void Session::on_stream_frame(const wire::StreamDataFrame& data, const wire::Frame& frame,
                              const transport::Message& message, detail::StreamCore* core) {
  if (core == nullptr) return;
  // Small items are copied, because the receive block that contains them is much larger.
  constexpr std::size_t small_bytes_max = 4096;
  detail::StreamCore::Item item;
  bool kept = !message.discarded;
  const auto keep = [&](Bytes bytes, Block* block, detail::ReceiveCharge& charge) {
    const bool copies = block == nullptr || bytes.size() <= small_bytes_max;
    Buffer buffer = copies ? Buffer::copy_of(bytes) : Buffer::share(block, bytes.data(), bytes.size());
    if (account_.bounded()) {
      kept = kept && (copies ? charge.add(account_, buffer.block()->size() + detail::StreamCore::kept_item_bytes)
                             : charge.keep(account_, buffer));
    }
    return buffer;
  };
  if (kept) item.body = keep(frame.body, message.head_block, item.body_charge);
  if (kept && !frame.payload.empty()) item.payload = keep(frame.payload, message.payload_block, item.payload_charge);
  if (!kept) {
    return on_unkept_item(data.call.number(),
                          Error::of_call(ErrorCode::limit_exceeded,
                                         "a stream item of the peer was refused: what is received and kept would pass "
                                         "receive_bytes_max of the loop, receive_share_bytes_max of the connection or "
                                         "receive_peer_bytes_max of its peer"));
  }
  if (const Result<void> status = core->on_item(std::move(item)); !status) protocol_error(status.error().text);
}

void Session::on_stream_frame(const wire::StreamEndFrame&, const wire::Frame&, const transport::Message&,
                              detail::StreamCore* core) {
  if (core == nullptr) return;
  if (const Result<void> status = core->on_end(); !status) protocol_error(status.error().text);
}

void Session::on_stream_frame(const wire::CreditFrame& credit, const wire::Frame&, const transport::Message&,
                              detail::StreamCore* core) {
  if (core == nullptr) return;
  if (const Result<void> status = core->on_credit(credit.bytes); !status) protocol_error(status.error().text);
}

// ---- The end ----

void Session::protocol_error(std::string text) {
  end_session(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

// The text is so short that it needs no memory.
void Session::end_without_memory() noexcept {
  end_session(Error::of_connection(ErrorCode::overloaded, "out of memory"));
}

void Session::copy_or_end(SendCompletion& owner) noexcept {
  try {
    connection_->copy_and_release(owner);
  } catch (const std::bad_alloc&) {
    connection_->abort();  // Releases the loans.
    if (!closed()) phase_ = Phase::ending;
    life_timer_.start(loop_, loop_.now());
  }
}

void Session::end_session(const Error& reason) {
  if (std::exchange(phase_, Phase::closed) == Phase::closed) return;
  life_timer_.stop();
  rest_.stop();
  backlog_.end();
  const std::uint64_t sent = connection_->sent();
  connection_->abort();
  if (guard_ != nullptr) guard_->end();
  if (memory_ != nullptr) memory_->end(reason, sent);
  // The loop did not run when this session was to check the peer. The peer's interval is not known; it is the same
  // unless an option says otherwise.
  const Duration pause = detail::LoopAccess::pause_since(loop_, peer_life_.due());
  if (reason.initiator != Initiator::peer || pause < settings_.ping_interval) return on_end(reason, sent);
  Error told = reason;
  told.text +=
      "; this side's loop had not run for " +
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(pause).count()) +
      " ms and answered no ping in that time: keep the loop running, as BackgroundLoops and BlockingClient do, "
      "or connect again after a pause";
  on_end(told, sent);
}

void Session::check_life() noexcept {
  if (closed()) return;
  try {
    if (phase_ == Phase::open) return check_peer();
  } catch (const std::bad_alloc&) {
  }
  end_without_memory();
}

void Session::check_peer() {
  using Verdict = PeerLife::Verdict;
  const Verdict verdict = peer_life_.check(loop_.now(), settings_.ping_interval,
                                           {.sent = connection_->sent(),
                                            .arrived = connection_->arrived(),
                                            .backlog = connection_->backlog(),
                                            .paused = connection_->paused()});
  if (verdict == Verdict::lost || verdict == Verdict::stuck) {
    Error error =
        Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                             verdict == Verdict::stuck ? "the peer has not taken a byte for two ping intervals"
                                                       : "the peer has given no sign of life for two ping intervals");
    if (settings_.beside_stream) error.scope = ErrorScope::transport;
    return end_session(std::move(error));
  }
  if (verdict == Verdict::silent) send_bare(wire::PingFrame{});
  if (!closed()) life_timer_.start(loop_, peer_life_.due());
}

}  // namespace hawser::rpc
