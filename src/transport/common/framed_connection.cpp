#include "transport/common/framed_connection.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "hawser/transport/framed.h"
#include "pipe/null_sink.h"
#include "transport/common/gather.h"

namespace hawser::transport {
namespace {

constexpr std::size_t prefix_bytes = wire::MessagePrefix::bytes;

}  // namespace

FramedConnection::FramedConnection(Loop& loop, std::unique_ptr<Stream> stream, FramedOptions options)
    : loop_(loop), stream_(std::move(stream)), transport_(stream_->transport()), options_(options) {}

FramedConnection::~FramedConnection() {
  loop_.remove_tick_end(*this);
  stream_.close_now();
}

Capabilities FramedConnection::capabilities() const noexcept {
  const std::size_t bytes_max = options_.message_limit.bytes_max() - prefix_bytes;
  return {.head_bytes_max = bytes_max,
          .message_bytes_max = bytes_max,
          .receive_buffer_bytes_min = receive_buffer_bytes_min,
          .gathers = true,
          .charges = true,
          .remote_memory = false,
          .guards_receive_buffers = !stream_.closed() && stream_->reports_every_receive()};
}

void FramedConnection::start(MessageSink& sink) {
  sink_ = &sink;
  account_ = sink.receive_account();
  if (stream_.closed()) return;
  stream_->set_sink(*this);
  stream_->resume();
}

// ---- Sending ----

void FramedConnection::send_preface(Bytes bytes) {
  std::memcpy(stream_.queue().reserve(bytes.size()), bytes.data(), bytes.size());
  stream_.queue().commit(bytes.size());
  committed_ += bytes.size();
  flush();
}

std::byte* FramedConnection::reserve(std::size_t head_bytes) {
  if (stream_.closed() || state_.finishing()) return nullptr;
  return stream_.queue().reserve(prefix_bytes + head_bytes) + prefix_bytes;
}

inline void FramedConnection::commit_head(std::size_t head_bytes, std::size_t payload_bytes) {
  assert(prefix_bytes + head_bytes + payload_bytes <= options_.message_limit.bytes_max());
  pipe::SendQueue& queue = stream_.queue();
  std::byte* const prefix = queue.reserve(prefix_bytes + head_bytes);
  wire::encode(prefix, {static_cast<std::uint32_t>(head_bytes), static_cast<std::uint32_t>(payload_bytes)});
  queue.commit(prefix_bytes + head_bytes);
  committed_ += prefix_bytes + head_bytes + payload_bytes;
}

inline void FramedConnection::send_soon(std::size_t message_bytes) {
  if (segment_fill_.add(message_bytes, stream_.queue())) send_queued();
  watermark_.on_commit(stream_.queue().bytes());
  if (!queued() && (watermark_.passed() || !stream_.queue().empty())) loop_.at_tick_end(*this);
}

// Apart from commit(), whose registers it would take up.
[[gnu::noinline]] void FramedConnection::commit_payload(std::size_t head_bytes, std::span<const ConstBuffer> payload,
                                                        SendCompletion* owner) {
  const std::size_t payload_bytes = total_bytes(payload);
  commit_head(head_bytes, payload_bytes);
  if (!payload.empty()) {
    stream_.queue().borrow(payload, owner);
  } else if (owner != nullptr) {
    owner->on_send_complete();
  }
  send_soon(prefix_bytes + head_bytes + payload_bytes);
}

void FramedConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  if (!payload.empty() || owner != nullptr) return commit_payload(head_bytes, payload, owner);
  commit_head(head_bytes, 0);
  send_soon(prefix_bytes + head_bytes);
}

void FramedConnection::flush() {
  if (stream_.sending()) return;
  send_queued();
  drained();
  if (state_.phase() != pipe::StreamState::Phase::finishing || stream_.backlog() != 0) return;
  state_.finish_sent();
  stream_->finish();
}

void FramedConnection::sendable(std::size_t bytes) {
  stream_.sendable(bytes);
  flush();
}

void FramedConnection::drained() {
  if (!stream_.closed() && watermark_.on_sent(stream_.backlog()) && sink_ != nullptr) sink_->on_drained();
}

void FramedConnection::close() {
  if (stream_.closed() || state_.finishing()) return;
  state_.finish();
  flush();
}

// ---- Receiving ----

// Makes room in block_ for more bytes of the current message. Returns false if the message is discarded instead, or if
// the connection has ended.
inline bool FramedConnection::prepare_block() {
  if (block_.block() != nullptr || wanted_ > receive_block_bytes) [[unlikely]]
    return extend_block();
  block_.begin(receive_block_bytes);
  return true;
}

// Likewise, if there is a block already, or one of the usual size is too small.
[[gnu::noinline]] bool FramedConnection::extend_block() {
  const std::size_t held = block_.held();
  // The room is large, so that a busy connection receives many bytes at a time.
  std::size_t room = std::max(wanted_, std::min(held + receive_block_bytes / 4, receive_block_bytes));
  if (room > receive_block_bytes && account_ != nullptr && !block_.has_room(room)) {
    // A head longer than a usual block is charged to the account.
    if (!account_->plenty(room)) {
      room = std::min(room, held < receive_block_bytes ? receive_block_bytes : PayloadBuffer::step_factor * held);
    }
    if (room > receive_block_bytes && !account_->set_arriving(room)) {
      begin_cut();
      return false;
    }
  }
  if (!block_.fit(room)) block_.replace(std::max(room, receive_block_bytes));
  if (account_ != nullptr && block_.size() > receive_block_bytes) account_->set_arriving_always(block_.size());
  return true;
}

MutableBytes FramedConnection::receive_space() {
  if (stream_.closed()) [[unlikely]]
    return pipe::discard_buffer();
  try {
    if (receiving_payload_ || !prepare_block()) [[unlikely]]
      return stream_.closed() ? pipe::discard_buffer() : payload_space();
  } catch (const std::bad_alloc&) {
    fail_without_memory();
    return pipe::discard_buffer();
  }
  const MutableBytes space = block_.space();
  return payload_last_ && block_.empty() ? space.first(probe_bytes) : space;
}

// Room for more bytes of the payload that is being received. May throw std::bad_alloc.
MutableBytes FramedConnection::payload_space() {
  PayloadBuffer& payload = incoming_.payload;
  if (!payload.grow(incoming_.done + 1, incoming_.done)) payload.discard();
  // received() or received_nothing() leaves again.
  if (payload.enter() && payload.data() != nullptr)
    return {payload.data() + incoming_.done, payload.room() - incoming_.done};
  return pipe::discard_buffer().first(std::min(pipe::discard_buffer().size(), incoming_.size - incoming_.done));
}

void FramedConnection::received(std::size_t bytes) {
  // The usual case at the end of a turn: no message has begun, so that there is no block to park.
  if (bytes == 0 && block_.block() == nullptr && !receiving_payload_) [[likely]]
    return;
  if (stream_.closed()) return;
  try {
    take(bytes);
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
}

// The text is so short that it needs no memory.
void FramedConnection::fail_without_memory() noexcept {
  taking_ = false;
  fail(Error::of_connection(ErrorCode::overloaded, "out of memory"));
}

inline void FramedConnection::take(std::size_t bytes) {
  incoming_.payload.leave();
  if (bytes == 0) return park();
  arrived_ += bytes;
  if (receiving_payload_) {
    incoming_.done += bytes;
    if (incoming_.done == incoming_.size) end_payload();
  } else {
    block_.received(bytes);
    take_messages();
  }
  drop_idle_block();
  if (paused_) park();
}

// Called when nothing arrives for the time being.
void FramedConnection::park() {
  // take_messages() reads from the block. A payload that is being received has dropped it.
  if (block_.block() == nullptr || taking_ || stream_.closed() || receiving_payload_) return;
  block_.park(paused_ ? receive_block_bytes / 4 : pipe::ReceiveBlock::parked_bytes_max);
  if (!block_.empty()) settle_block();
}

// Charges the account for the block that is held while nothing arrives.
void FramedConnection::settle_block() {
  if (account_ == nullptr) return;
  unread_.reset();
  if (account_->set_arriving(block_.size())) return;
  // A paused connection may hold whole messages, and its peer may be reading.
  if (block_.held() <= pipe::ReceiveBlock::parked_bytes_max ||  // Bounded by the number of connections.
      (paused_ && unread_.begin(*account_, block_.size()))) {
    account_->set_arriving_always(block_.size());
  } else if (paused_) {
    fail(Error::of_connection(
        Initiator::peer, ErrorCode::overloaded,
        "the peer does not read what waits for it, and there is no memory left (receive_bytes_max, "
        "receive_peer_bytes_max) for what it has sent"));
  } else {
    begin_cut();
  }
}

// Discards the current message, whose head has not arrived completely, except the beginning of the head.
void FramedConnection::begin_cut() {
  const std::byte* const start = block_.data();
  const wire::MessagePrefix prefix = wire::MessagePrefix::decode(start);
  const std::size_t held = block_.held() - prefix_bytes;
  const std::size_t kept = std::min({std::size_t{prefix.head_bytes}, held, cut_head_bytes});
  incoming_ = {};
  incoming_.head = Buffer::copy_of(Bytes(start + prefix_bytes, kept));
  incoming_.size = prefix.message_bytes() - prefix_bytes;
  incoming_.payload.discard();
  incoming_.done = held;
  incoming_.cut = true;
  receiving_payload_ = true;
  wanted_ = 0;
  block_.drop();
  account_->set_arriving(0);
}

// Delivers one message from block_. Returns false if more bytes are needed first.
[[gnu::always_inline]] inline bool FramedConnection::take_one() {
  const Bytes bytes = block_.bytes();
  const std::size_t held = bytes.size();
  wanted_ = 0;
  if (held < prefix_bytes) return false;
  const wire::ParsedPrefix parsed = wire::parse_prefix(bytes, options_.message_limit);
  if (parsed.state == wire::ParsedPrefix::State::too_long) [[unlikely]] {
    fail(options_.message_limit.exceeded_by(parsed.prefix));
    return false;
  }
  const std::size_t head_bytes = parsed.prefix.head_bytes;
  const std::size_t payload_bytes = parsed.prefix.payload_bytes;
  const std::size_t total = parsed.prefix.message_bytes();
  const Bytes head(bytes.data() + prefix_bytes, head_bytes);
  if (held >= total) {
    payload_last_ = false;
    block_.take(total);
    // From now on the account charges whoever keeps the message.
    if (account_ != nullptr && account_->arriving() != 0) account_->set_arriving(0);
    sink_->on_message({.head = head,
                       .payload = Bytes(head.data() + head_bytes, payload_bytes),
                       .head_block = block_.block(),
                       .payload_block = block_.block()});
    return true;
  }
  if (payload_bytes >= receive_buffer_bytes_min) {
    if (held >= prefix_bytes + head_bytes) return begin_payload(head, payload_bytes);
    wanted_ = prefix_bytes + head_bytes;
  } else {
    wanted_ = total;
  }
  return false;
}

void FramedConnection::take_messages() {
  if (std::exchange(taking_, true)) return;
  while (!stream_.closed() && !paused_ && !receiving_payload_ && !block_.empty() && take_one()) {
  }
  taking_ = false;
  if (stream_.closed()) return block_.drop();
  if (account_ != nullptr && account_->arriving() != 0 && !receiving_payload_ && block_.size() <= receive_block_bytes) {
    account_->set_arriving(0);  // settle_block() charges again when nothing arrives.
  }
}

// Called when the head and possibly a part of the payload have arrived. The rest of the payload is received directly
// into its receive buffer.
bool FramedConnection::begin_payload(Bytes head, std::size_t payload_bytes) {
  const ReceiveBuffer buffer = sink_->select_receive_buffer(head, payload_bytes);
  if (stream_.closed()) return false;
  const std::byte* const present = head.data() + head.size();
  const auto present_bytes = static_cast<std::size_t>(block_.data() + block_.held() - present);
  incoming_ = {};
  incoming_.size = payload_bytes;
  // A short head is copied, because the much larger block would be held until the payload has arrived.
  incoming_.head =
      head.size() <= cut_head_bytes ? Buffer::copy_of(head) : Buffer::share(block_.block(), head.data(), head.size());
  receiving_payload_ = true;
  if (account_ != nullptr && !account_->set_arriving(incoming_.head.block()->size())) {
    account_->set_arriving_always(incoming_.head.block()->size());
  }
  PayloadBuffer& payload = incoming_.payload = PayloadBuffer(payload_bytes, account_);
  payload.select(buffer);
  if (!payload.grow(std::max<std::size_t>(present_bytes, 1), 0)) payload.discard();
  incoming_.done = present_bytes;
  if (present_bytes != 0 && payload.enter() && payload.data() != nullptr) {
    std::memcpy(payload.data(), present, present_bytes);
  }
  payload.leave();
  block_.drop();
  return false;
}

void FramedConnection::end_payload() {
  IncomingPayload incoming = std::exchange(incoming_, {});
  receiving_payload_ = false;
  payload_last_ = true;
  Message message{
      .head = incoming.head.bytes(), .payload = {}, .head_block = incoming.head.block(), .cut = incoming.cut};
  incoming.payload.complete(message);
  if (account_ != nullptr) account_->set_arriving(0);  // From now on whoever keeps the message is charged.
  sink_->on_message(message);
}

void FramedConnection::revoke_receive_buffer(const std::byte* memory) noexcept {
  if (receiving_payload_) incoming_.payload.revoke(memory);
}

void FramedConnection::pause() noexcept {
  paused_ = true;
  if (!stream_.closed()) stream_->pause();
}

void FramedConnection::resume() {
  if (!paused_) return;
  paused_ = false;
  unread_.reset();
  try {
    take_messages();
    park();
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
  if (!paused_ && !stream_.closed()) stream_->resume();
}

// ---- The end ----

void FramedConnection::fail(const Error& reason) {
  if (stream_.closed()) return;
  abort();
  sink_->on_closed(reason);
}

void FramedConnection::abort() noexcept {
  if (stream_.closed()) return;
  state_.close();
  stream_.close(loop_);
  stream_.queue().clear();
  receiving_payload_ = false;
  incoming_ = {};
  unread_.reset();
  if (!taking_) block_.drop();
}

// Fails at once: requests that the peer sent before need no answer, because the peer could not receive it.
void FramedConnection::broken(const Error& reason) { fail(reason); }

void FramedConnection::ended(const Error& reason) { fail(reason); }

std::unique_ptr<Connection> make_framed_connection(Loop& loop, std::unique_ptr<Stream> stream,
                                                   const MessageLimits& limits) {
  stream->start(loop, pipe::null_sink());
  stream->pause();
  const FramedOptions options{.message_limit = wire::MessageLimit::without_prefix(limits.receive_bytes_max)};
  return std::make_unique<FramedConnection>(loop, std::move(stream), options);
}

}  // namespace hawser::transport
