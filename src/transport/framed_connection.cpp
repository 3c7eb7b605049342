#include "transport/framed_connection.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/little_endian.h"

namespace hawser::transport {
namespace {

// Segments handed to one send. The kernel takes up to 1,024; more than this gains nothing measurable.
constexpr std::size_t pieces_max = 64;

// Where discarded bytes are received; nobody reads it, so threads may share it.
MutableBytes scrap() noexcept {
  static thread_local std::array<std::byte, 64 * 1024> memory;
  return memory;
}

// Takes what a stream still has to say between abort() and its end, when the connection may be gone already.
StreamSink& nobody() noexcept {
  struct Nobody final : StreamSink {
    MutableBytes receive_space() override { return scrap(); }
    void received(std::size_t) override {}
    void sendable(std::size_t) override {}
    void ended(const Error&) override {}
  };
  static Nobody sink;
  return sink;
}

}  // namespace

FramedConnection::FramedConnection(Loop& loop, std::unique_ptr<Stream> stream, FramedOptions options)
    : loop_(loop),
      stream_(std::move(stream)),
      closing_(std::make_unique<Closing>()),
      transport_(stream_->transport()),
      options_(options) {}

FramedConnection::~FramedConnection() {
  loop_.remove_tick_end(*this);
  stream_.reset();
  sending_.clear();
  drop_block();
}

Capabilities FramedConnection::capabilities() const noexcept {
  return {.head_bytes_max = options_.message_bytes_max - prefix_bytes,
          .message_bytes_max = options_.message_bytes_max - prefix_bytes,
          .placed_bytes_min = placed_bytes_min,
          .gathers = true,
          .remote_memory = false};
}

void FramedConnection::start(MessageSink& sink) {
  sink_ = &sink;
  if (stream_ == nullptr) return;
  stream_->set_sink(*this);
  stream_->resume();
}

// ---- Sending ----

void FramedConnection::send_preface(Bytes bytes) {
  std::memcpy(sending_.reserve(bytes.size()), bytes.data(), bytes.size());
  sending_.commit(bytes.size());
  committed_ += bytes.size();
  flush();
}

std::byte* FramedConnection::reserve(std::size_t head_bytes) {
  if (ended_ || finishing_) return nullptr;
  return sending_.reserve(prefix_bytes + head_bytes) + prefix_bytes;
}

void FramedConnection::commit(std::size_t head_bytes, std::span<const Piece> payload, PayloadOwner* owner) {
  std::size_t payload_bytes = 0;
  for (const Piece& piece : payload) payload_bytes += piece.size;
  assert(prefix_bytes + head_bytes + payload_bytes <= options_.message_bytes_max);
  std::byte* const prefix = sending_.reserve(prefix_bytes + head_bytes);
  store_le(prefix, static_cast<std::uint32_t>(head_bytes));
  store_le(prefix + 4, static_cast<std::uint32_t>(payload_bytes));
  sending_.commit(prefix_bytes + head_bytes);
  committed_ += prefix_bytes + head_bytes + payload_bytes;
  if (!payload.empty()) {
    sending_.borrow(payload, owner);
  } else if (owner != nullptr) {
    owner->payload_released();
  }
  if (sending_.bytes() >= options_.early_flush_bytes) send_queued();
  // Whoever sees the backlog above the mark now waits for on_drained(), even if the end of the tick sends it all.
  if (sending_.bytes() > backlog_mark_) above_mark_ = true;
  if (above_mark_ || !sending_.empty()) loop_.at_tick_end(*this);
}

void FramedConnection::flush() {
  if (sending_now_) return;
  send_queued();
  drained();
  if (finishing_ && sending_.empty() && !ended_ && !std::exchange(finished_, true)) stream_->finish();
}

void FramedConnection::send_queued() {
  if (std::exchange(sending_now_, true)) return;
  while (!blocked_ && !ended_ && !sending_.empty()) {
    std::array<Piece, pieces_max> pieces;
    const std::size_t count = sending_.peek(pieces);
    std::size_t offered = 0;
    for (std::size_t i = 0; i < count; ++i) offered += pieces[i].size;
    const std::size_t taken = stream_->send(std::span(pieces.data(), count));
    blocked_ = taken < offered;
    sent_ += taken;
    sending_.consume(taken);
  }
  sending_now_ = false;
}

void FramedConnection::sendable(std::size_t bytes) {
  sent_ += bytes;
  sending_now_ = true;
  sending_.consume(bytes);
  sending_now_ = false;
  blocked_ = false;
  flush();
}

void FramedConnection::drained() {
  if (!above_mark_ || ended_ || sending_.bytes() > backlog_mark_ / 2) return;
  above_mark_ = false;
  if (sink_ != nullptr) sink_->on_drained();
}

void FramedConnection::close() {
  if (ended_ || finishing_) return;
  finishing_ = true;
  flush();
}

// ---- Receiving ----

void FramedConnection::drop_block() noexcept {
  if (block_ != nullptr) std::exchange(block_, nullptr)->release();
  begin_ = end_ = 0;
}

// An idle connection holds no memory. Whoever still reads in the block holds a reference of its own.
void FramedConnection::drop_idle_block() noexcept {
  if (!placing_ && begin_ == end_) drop_block();
}

// Makes block_ hold [begin_, end_) with room for `wanted` bytes from begin_ on.
void FramedConnection::make_room(std::size_t wanted) {
  if (block_ != nullptr && block_->size() - begin_ >= wanted) return;
  const std::size_t held = end_ - begin_;
  if (block_ != nullptr && block_->size() >= wanted && block_->unique()) {
    std::memmove(block_->data(), block_->data() + begin_, held);
  } else {
    Block* larger = Block::allocate(std::max(wanted, receive_block_bytes));
    if (held != 0) std::memcpy(larger->data(), block_->data() + begin_, held);
    if (block_ != nullptr) block_->release();
    block_ = larger;
  }
  begin_ = 0;
  end_ = held;
}

MutableBytes FramedConnection::receive_space() {
  if (ended_) return scrap();
  if (placing_) {
    if (placed_.memory != nullptr) return {placed_.memory + placed_.done, placed_.size - placed_.done};
    return scrap().first(std::min(scrap().size(), placed_.size - placed_.done));
  }
  // Enough room that a busy connection receives much at a time.
  make_room(std::max(wanted_, end_ - begin_ + receive_block_bytes / 4));
  const MutableBytes space(block_->data() + end_, block_->size() - end_);
  return placed_last_ && begin_ == end_ ? space.first(probe_bytes) : space;
}

void FramedConnection::received(std::size_t bytes) {
  if (ended_) return;
  if (bytes == 0) return park();
  arrived_ += bytes;
  if (placing_) {
    placed_.done += bytes;
    if (placed_.done == placed_.size) end_placed();
  } else {
    end_ += bytes;
    take_messages();
  }
  drop_idle_block();
}

// Nothing comes for the time being. A connection that has sent the beginning of a message may keep us waiting for the
// rest: thousands of them must not hold a large block each.
void FramedConnection::park() {
  drop_idle_block();
  const std::size_t held = end_ - begin_;
  if (placing_ || paused_ || block_ == nullptr || held > parked_bytes_max || block_->size() <= 2 * parked_bytes_max)
    return;
  Block* const small = Block::allocate(held);
  std::memcpy(small->data(), block_->data() + begin_, held);
  drop_block();
  block_ = small;
  end_ = held;
}

void FramedConnection::take_messages() {
  if (std::exchange(taking_, true)) return;
  while (!ended_ && !paused_ && !placing_ && take_one()) {
  }
  taking_ = false;
}

// One message out of [begin_, end_); false if more bytes are needed first.
bool FramedConnection::take_one() {
  const std::size_t held = end_ - begin_;
  wanted_ = 0;
  if (held < prefix_bytes) return false;
  const std::byte* const prefix = block_->data() + begin_;
  const std::size_t head_bytes = load_le<std::uint32_t>(prefix);
  const std::size_t payload_bytes = load_le<std::uint32_t>(prefix + 4);
  const std::size_t total = prefix_bytes + head_bytes + payload_bytes;
  if (total > options_.message_bytes_max) {
    fail({ErrorCode::protocol_error, ErrorScope::connection, Initiator::peer, 0,
          "a message of " + std::to_string(total) + " bytes exceeds message_bytes_max (" +
              std::to_string(options_.message_bytes_max) + "): send less, or raise the limit on both sides"});
    return false;
  }
  const Bytes head(prefix + prefix_bytes, head_bytes);
  if (held >= total) {
    placed_last_ = false;
    begin_ += total;
    sink_->on_message({.head = head,
                       .payload = Bytes(head.data() + head_bytes, payload_bytes),
                       .head_block = block_,
                       .payload_block = block_});
    return true;
  }
  if (payload_bytes >= placed_bytes_min) {
    if (held >= prefix_bytes + head_bytes) return begin_placed(head, payload_bytes);
    wanted_ = prefix_bytes + head_bytes;
  } else {
    wanted_ = total;
  }
  return false;
}

// The head is here and part of the payload may be: the rest is received straight into its place.
bool FramedConnection::begin_placed(Bytes head, std::size_t payload_bytes) {
  const Placement placement = sink_->place(head, payload_bytes);
  if (ended_) return false;
  placed_.head = Buffer::share(block_, head.data(), head.size());
  placed_.size = payload_bytes;
  switch (placement.kind) {
    case Placement::Kind::own:
      placed_.own = Buffer::allocate(payload_bytes);
      placed_.memory = placed_.own.mutable_data();
      break;
    case Placement::Kind::given:
      assert(placement.memory.size() >= payload_bytes);
      placed_.memory = placement.memory.data();
      break;
    case Placement::Kind::discard: placed_.memory = nullptr; break;
  }
  const std::byte* const present = head.data() + head.size();
  placed_.done = static_cast<std::size_t>(block_->data() + end_ - present);
  if (placed_.memory != nullptr) std::memcpy(placed_.memory, present, placed_.done);
  placing_ = true;
  drop_block();
  return false;
}

void FramedConnection::end_placed() {
  Placed placed = std::exchange(placed_, {});
  placing_ = false;
  placed_last_ = true;
  sink_->on_message({.head = placed.head.bytes(),
                     .payload = placed.memory == nullptr ? Bytes() : Bytes(placed.memory, placed.size),
                     .head_block = placed.head.block(),
                     .payload_block = placed.own.block(),
                     .discarded = placed.memory == nullptr});
}

void FramedConnection::unplace(const std::byte* memory) noexcept {
  if (placing_ && placed_.memory == memory) placed_.memory = nullptr;  // The rest goes to the scrap.
}

void FramedConnection::pause() noexcept {
  paused_ = true;
  if (stream_ != nullptr) stream_->pause();
}

void FramedConnection::resume() {
  if (!paused_) return;
  paused_ = false;
  take_messages();
  if (!taking_) drop_idle_block();
  if (!paused_ && !ended_) stream_->resume();
}

// ---- The end ----

void FramedConnection::fail(Error reason) {
  if (ended_) return;
  abort();
  sink_->on_closed(reason);
}

void FramedConnection::abort() noexcept {
  if (std::exchange(ended_, true)) return;
  sending_.clear();
  placing_ = false;
  placed_ = {};
  // The socket is closed now, and not when the last call that still uses the session has ended; but by the loop, since
  // this may come from within the stream.
  stream_->pause();
  stream_->set_sink(nobody());
  closing_->stream = std::move(stream_);
  loop_.post(std::unique_ptr<detail::Posted>(std::move(closing_)));
}

// Requests that the peer sent before are not worth waiting for: nobody would hear the answers.
void FramedConnection::broken(const Error& reason) { fail(reason); }

void FramedConnection::ended(const Error& reason) { fail(reason); }

}  // namespace hawser::transport
