#include "transport/shm/receiver.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace hawser::transport::shm {
namespace {

constexpr std::string_view begins_early = "a message begins before the end of another message";

}  // namespace

std::unexpected<Error> protocol_violation(std::string_view what) {
  return hawser::fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                           "the peer violated the shared memory protocol: " + std::string(what)));
}

std::unexpected<Error> closed_by_peer() {
  return hawser::fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection"));
}

ShmReceiver::ShmReceiver(Loop& loop, std::shared_ptr<SharedMemory> memory, std::size_t side, const Limits& limits,
                         const PeerWaker& waker, ReadingMeans means)
    : loop_(loop),
      limits_(limits),
      in_place_limit_(limits.copies ? wire::MessageLimit::without_prefix(0) : limits.message),
      waker_(waker),
      ring_(memory->ring(side), memory->sizes().ring, memory->control().rings[side]),
      slab_(SlabReader::create(memory, side)),
      slots_(memory->control().reads[side]),
      chunks_(memory->sizes().chunks()),
      part_(memory->part(side)),
      own_side_(memory->control().sides[1 - side]),
      mark_(memory->mark()),
      means_(std::move(means)) {}

ShmReceiver::~ShmReceiver() {
  stop();
  slab_->drop();
}

Result<bool> ShmReceiver::take(Gate& gate) {
  if (!gate.open() || std::exchange(taking_, true)) return false;
  bool worked = false;
  if (std::exchange(held_, false)) {
    assembly_.deliver(*gate.sink);
    worked = true;
  }
  Result<void> result;
  // Processes the messages that are there now, so that other work gets its turn.
  if (gate.open() && reading_) [[unlikely]] {
    worked = reading_ready();
    if (worked) result = go_on_reading(gate);
  }
  if (result && gate.open() && !reading_ && ring_.available() != 0) {
    worked = true;
    do {
      result = take_one(gate);
    } while (result && gate.open() && !reading_ && ring_.left() != 0);
  }
  if (result && ring_.broken()) result = protocol_violation("the tail or head of its ring is out of bounds");
  if (ring_.unpublished() != 0) {
    ring_.publish();
    advanced_ = true;
  }
  if (std::exchange(advanced_, false)) waker_.wake(wants_room);
  taking_ = false;
  TRY(result);
  return worked;
}

void ShmReceiver::advance(std::size_t bytes) noexcept {
  ring_.advance(bytes);
  arrived_ += bytes;
  // Returns the room in between, so that a peer that sends much can continue.
  if (ring_.unpublished() < ring_.bytes() / 4) return;
  ring_.publish();
  advanced_ = true;
}

Result<void> ShmReceiver::take_one(Gate& gate) {
  const std::size_t left = ring_.left();
  const RingRecord record = ring_.record();
  const std::byte* const data = ring_.at() + sizeof record;
  const std::size_t head_room = sizeof record + aligned(record.head_bytes);
  if (selected_ && std::memcmp(&record, &selected_record_, sizeof record) != 0) [[unlikely]]
    return protocol_violation("a message has changed while it waited");
  if (record.kind == RingRecordKind::whole) [[likely]] {
    if (head_room + aligned(record.payload_bytes) > left || assembly_.active())
      return protocol_violation("a message extends beyond the tail of its ring, or begins within another message");
    if (in_place_limit_.allows({record.head_bytes, record.payload_bytes})) [[likely]] {
      take_whole(record, data, gate);
      return {};
    }
  }
  const wire::MessagePrefix lengths{record.head_bytes, record.payload_bytes};
  if (record.kind != RingRecordKind::long_part && !limits_.message.allows(lengths)) {
    return hawser::fail(limits_.message.exceeded_by(lengths));
  }
  if (record.kind == RingRecordKind::long_begin) return begin_long(record);
  if (head_room > left) return protocol_violation("a message extends beyond the tail of its ring");
  if (record.kind == RingRecordKind::whole) {
    take_whole_copy(record, data, gate);
    return {};
  }
  const Bytes head = head_of(record, data);
  switch (record.kind) {
    case RingRecordKind::slab:
      return assembly_.active() ? protocol_violation(begins_early) : take_from_slab(record, head, gate);
    case RingRecordKind::read:
      return assembly_.active() ? protocol_violation(begins_early) : begin_reading(record, head, gate);
    case RingRecordKind::long_part: return take_part(record, gate);
    case RingRecordKind::end:
      return assembly_.active() ? protocol_violation("the end of the connection before the end of a message")
                                : closed_by_peer();
    default: return protocol_violation("a record of an unknown kind");
  }
}

void ShmReceiver::take_whole(const RingRecord& record, const std::byte* head, Gate& gate) {
  const std::size_t head_room = aligned(record.head_bytes);
  gate.sink->on_message(
      {.head = Bytes(head, record.head_bytes), .payload = Bytes(head + head_room, record.payload_bytes)});
  advance(sizeof record + head_room + aligned(record.payload_bytes));
}

// Without the peer's access to what is delivered.
void ShmReceiver::take_whole_copy(const RingRecord& record, const std::byte* head, Gate& gate) {
  const std::size_t head_room = aligned(record.head_bytes);
  copied_.assign(head, head + head_room + record.payload_bytes);
  gate.sink->on_message({.head = Bytes(copied_).first(record.head_bytes),
                         .payload = Bytes(copied_).subspan(head_room, record.payload_bytes)});
  advance(sizeof record + head_room + aligned(record.payload_bytes));
}

// The head that is delivered. A message that waits for its destination keeps the copy from which it was selected.
Bytes ShmReceiver::head_of(const RingRecord& record, const std::byte* head) {
  if (!limits_.copies) return {head, record.head_bytes};
  if (!selected_) copied_.assign(head, head + record.head_bytes);
  return copied_;
}

// Returns the destination of the payload. Nothing if the connection has ended or is paused; a pause keeps the
// destination for later.
std::optional<ReceiveBuffer> ShmReceiver::select_receive_buffer(const RingRecord& record, Bytes head, Gate& gate) {
  const std::size_t payload_bytes = record.payload_bytes;
  if (selected_) return std::exchange(selected_, std::nullopt);
  ReceiveBuffer receive_buffer;
  if (payload_bytes >= limits_.receive_buffer_bytes_min)
    receive_buffer = gate.sink->select_receive_buffer(head, payload_bytes);
  assert(receive_buffer.kind != ReceiveBuffer::Kind::given || receive_buffer.memory.size() >= payload_bytes);
  if (gate.open()) return receive_buffer;
  if (!gate.ended) {
    selected_ = receive_buffer;
    selected_record_ = record;
  }
  return std::nullopt;
}

Result<void> ShmReceiver::take_from_slab(const RingRecord& record, Bytes head, Gate& gate) {
  const std::size_t bytes = record.payload_bytes;
  const std::byte* const payload = record.where < chunks_ ? slab_->find(record.where, bytes) : nullptr;
  if (payload == nullptr)
    return protocol_violation("a payload extends beyond the slab, or lies in a region that is in use");
  if (!slab_->supply(record.where, bytes)) {
    return fail(Error::of_connection(ErrorCode::unavailable,
                                     "the system has no memory for a payload of " + std::to_string(bytes) +
                                         " bytes in the slab (vm.overcommit_memory is 2): raise vm.overcommit_ratio"));
  }
  const std::optional<ReceiveBuffer> receive_buffer = select_receive_buffer(record, head, gate);
  if (!receive_buffer) return {};
  Message message{.head = head, .payload = {}};
  Block* loaned = nullptr;
  const bool own = receive_buffer->kind == ReceiveBuffer::Kind::own;
  PayloadBuffer to(bytes, own ? account_ : nullptr);  // Lives until the message was delivered.
  if (own && !limits_.copies) {
    loaned = slab_->loan(record.where);
    message.payload = Bytes(payload, bytes);
    message.payload_block = loaned;
  } else {
    to.select(*receive_buffer);
    if (own && !to.allocate()) to.discard();
    if (!to.discarded()) std::memcpy(to.data(), payload, bytes);
    slab_->release(record.where);
    to.complete(message);
  }
  arrived_ += bytes;
  gate.sink->on_message(message);
  if (loaned != nullptr) loaned->release();
  advance(sizeof record + aligned(record.head_bytes));
  return {};
}

// ---- Messages in parts ----

Result<void> ShmReceiver::begin_long(const RingRecord& record) {
  if (assembly_.active() || (record.head_bytes == 0 && record.payload_bytes == 0))
    return protocol_violation("a message in parts that is empty, or that begins before the end of another message");
  assembly_.begin(record.head_bytes, record.payload_bytes, account_);
  advance(sizeof record);
  return {};
}

Result<void> ShmReceiver::take_part(const RingRecord& record, Gate& gate) {
  if (!assembly_.active() || record.payload_bytes != 0 || record.head_bytes == 0 ||
      record.head_bytes > assembly_.missing()) {
    return protocol_violation(
        "a part without a preceding begin, an empty part, or a part that is longer than the rest of its message");
  }
  const Bytes part(ring_.at() + sizeof record, record.head_bytes);
  if (!assembly_.append(part, *gate.sink, limits_.receive_buffer_bytes_min, gate.ended)) return {};
  advance(sizeof record + aligned(record.head_bytes));
  if (assembly_.missing() != 0) return {};
  if (gate.open()) {
    assembly_.deliver(*gate.sink);
  } else {
    held_ = true;
  }
  return {};
}

void ShmReceiver::revoke_receive_buffer(const std::byte* memory) noexcept {
  if (memory == nullptr) return;
  if (selected_ && selected_->kind == ReceiveBuffer::Kind::given && selected_->memory.data() == memory) {
    selected_ = ReceiveBuffer{.kind = ReceiveBuffer::Kind::discard, .memory = {}};
  }
  assembly_.revoke(memory);
  if (reading_ && reading_->payload.revokes(memory)) {
    reading_->payload.discard();
    if (reading_->job != nullptr) reading_->job->withdraw();
  }
}

}  // namespace hawser::transport::shm
