#include "transport/shm/incoming.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

namespace hawser::transport::shm {
namespace {

std::unexpected<Error> breach(std::string_view what) {
  return fail(ErrorCode::protocol_error, "the peer broke the rules of shared memory: " + std::string(what),
              ErrorScope::connection, Initiator::peer);
}

std::unexpected<Error> closed() {
  return fail(ErrorCode::unavailable, "the peer closed the connection", ErrorScope::connection, Initiator::peer);
}

}  // namespace

Incoming::Incoming(std::shared_ptr<SharedMemory> memory, std::size_t side, const Limits& limits,
                   const PeerProcess& peer, const PeerWaker& waker)
    : limits_(limits),
      peer_(peer),
      waker_(waker),
      ring_(memory->ring(side), memory->sizes().ring, memory->control().rings[side]),
      slab_(SlabReader::create(memory, side)),
      slots_(memory->control().reads[side]),
      chunks_(memory->sizes().chunks()) {}

Incoming::~Incoming() { slab_->drop(); }

Result<bool> Incoming::take(Gate& gate) {
  if (!gate.open() || std::exchange(taking_, true)) return false;
  bool worked = false;
  if (std::exchange(held_, false)) {
    end_long(gate);
    worked = true;
  }
  Result<void> result;
  // What is there now, so that others get their turn.
  if (gate.open() && ring_.available() != 0) {
    worked = true;
    do {
      result = take_one(gate);
    } while (result && gate.open() && ring_.left() != 0);
  }
  if (result && ring_.broken()) result = breach("its ring's end is out of bounds");
  if (ring_.unpublished() != 0) {
    ring_.publish();
    advanced_ = true;
  }
  if (std::exchange(advanced_, false)) waker_.wake(wants_room);
  taking_ = false;
  if (!result) return std::unexpected(std::move(result.error()));
  return worked;
}

void Incoming::advance(std::size_t bytes) noexcept {
  ring_.advance(bytes);
  arrived_ += bytes;
  // So that a peer that sends much goes on meanwhile.
  if (ring_.unpublished() < ring_.bytes() / 4) return;
  ring_.publish();
  advanced_ = true;
}

Result<void> Incoming::take_one(Gate& gate) {
  const std::size_t left = ring_.left();
  const Record record = ring_.record();
  const std::byte* const data = ring_.at() + sizeof record;
  const std::size_t head_room = sizeof record + aligned(record.head_bytes);
  if (record.kind == RecordKind::whole) [[likely]] {
    if (head_room + aligned(record.payload_bytes) > left || long_) return breach("a message passes the ring's end");
    if (std::size_t{record.head_bytes} + record.payload_bytes <= limits_.message_bytes_max) [[likely]] {
      take_whole(record, data, gate);
      return {};
    }
  }
  if (record.kind != RecordKind::long_part &&
      std::size_t{record.head_bytes} + record.payload_bytes > limits_.message_bytes_max) {
    return fail(ErrorCode::protocol_error,
                "a message of " + std::to_string(std::size_t{record.head_bytes} + record.payload_bytes) +
                    " bytes exceeds message_bytes_max (" + std::to_string(limits_.message_bytes_max) +
                    "): send less, or raise the limit on both sides",
                ErrorScope::connection, Initiator::peer);
  }
  if (record.kind == RecordKind::long_begin) return begin_long(record);
  if (head_room > left) return breach("a message passes the ring's end");
  const Bytes head(data, record.head_bytes);
  switch (record.kind) {
    case RecordKind::slab: return long_ ? breach("a message within another") : take_from_slab(record, head, gate);
    case RecordKind::read: return long_ ? breach("a message within another") : take_by_reading(record, head, gate);
    case RecordKind::long_part: return take_part(record, gate);
    case RecordKind::end: return long_ ? breach("an end within a message") : closed();
    default: return breach("a record of an unknown kind");
  }
}

void Incoming::take_whole(const Record& record, const std::byte* head, Gate& gate) {
  const std::size_t head_room = aligned(record.head_bytes);
  gate.sink->on_message(
      {.head = Bytes(head, record.head_bytes), .payload = Bytes(head + head_room, record.payload_bytes)});
  advance(sizeof record + head_room + aligned(record.payload_bytes));
}

// Where the payload goes; nothing if the connection has ended, or is paused, until which that is kept in mind.
std::optional<Placement> Incoming::place(Bytes head, std::size_t payload_bytes, Gate& gate) {
  if (placement_) return std::exchange(placement_, std::nullopt);
  Placement placement;
  if (payload_bytes >= limits_.placed_bytes_min) placement = gate.sink->place(head, payload_bytes);
  assert(placement.kind != Placement::Kind::given || placement.memory.size() >= payload_bytes);
  if (gate.open()) return placement;
  if (!gate.ended) placement_ = placement;
  return std::nullopt;
}

Result<void> Incoming::take_from_slab(const Record& record, Bytes head, Gate& gate) {
  const std::size_t bytes = record.payload_bytes;
  const std::byte* const payload = record.where < chunks_ ? slab_->find(record.where, bytes) : nullptr;
  if (payload == nullptr) return breach("a payload passes the slab's end, or lies in a region that is in use");
  const std::optional<Placement> placement = place(head, bytes, gate);
  if (!placement) return {};
  Message message{.head = head};
  Block* lent = nullptr;
  switch (placement->kind) {
    case Placement::Kind::own:
      lent = slab_->lend(record.where);
      message.payload = Bytes(payload, bytes);
      message.payload_block = lent;
      break;
    case Placement::Kind::given:
      std::memcpy(placement->memory.data(), payload, bytes);
      slab_->give_back(record.where);
      message.payload = placement->memory.first(bytes);
      break;
    case Placement::Kind::discard:
      slab_->give_back(record.where);
      message.discarded = true;
      break;
  }
  arrived_ += bytes;
  gate.sink->on_message(message);
  if (lent != nullptr) lent->release();
  advance(sizeof record + aligned(record.head_bytes));
  return {};
}

Result<void> Incoming::take_by_reading(const Record& record, Bytes head, Gate& gate) {
  const std::size_t bytes = record.payload_bytes;
  if (record.where >= slots_.size() || bytes == 0) return breach("there is no such payload to be read");
  const std::optional<Placement> placement = place(head, bytes, gate);
  if (!placement) return {};
  Message message{.head = head};
  Buffer own;
  MutableBytes to;
  if (placement->kind == Placement::Kind::own) {
    own = Buffer::allocate(bytes);
    to = own.mutable_bytes();
    message.payload_block = own.block();
  } else if (placement->kind == Placement::Kind::given) {
    to = placement->memory.first(bytes);
  } else {
    message.discarded = true;
  }
  message.payload = to;
  if (message.discarded) {
    slots_[record.where].state.store(read_done, std::memory_order_release);
  } else {
    const Result<bool> done = read_offered_payload(record, to);
    if (!done) return std::unexpected(done.error());
    // The peer has taken it back, which it does at its end only.
    if (!*done) return closed();
  }
  waker_.wake(wants_room);
  arrived_ += bytes;
  gate.sink->on_message(message);
  advance(sizeof record + aligned(record.head_bytes));
  return {};
}

// False if the peer has withdrawn it.
Result<bool> Incoming::read_offered_payload(const Record& record, MutableBytes to) {
  ReadSlot& slot = slots_[record.where];
  // It may move once meanwhile.
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::uint32_t state = slot.state.load(std::memory_order_acquire);
    std::array<RemotePiece, read_pieces_max> pieces;
    std::size_t count = 1;
    if (state == read_offered) {
      count = slot.count.load(std::memory_order_relaxed);
      if (count > pieces.size()) return breach("a payload to be read has too many pieces");
      std::size_t total = 0;
      for (std::size_t i = 0; i < count; ++i) {
        pieces[i] = {slot.pieces[i].address.load(std::memory_order_relaxed),
                     slot.pieces[i].bytes.load(std::memory_order_relaxed)};
        if (pieces[i].bytes > to.size() - total) return breach("a payload to be read is longer than announced");
        total += pieces[i].bytes;
      }
      if (total != to.size()) return breach("a payload to be read is shorter than announced");
    } else if (state == read_moved) {
      pieces[0] = {slot.moved.load(std::memory_order_relaxed), to.size()};
    } else if (state == read_withdrawn) {
      return false;
    } else {
      return breach("a payload to be read is not there");
    }
    const Result<void> read = peer_.read(std::span(pieces.data(), count), to);
    const bool same = slot.state.compare_exchange_strong(state, read_done, std::memory_order_acq_rel);
    if (!same) continue;
    if (read) return true;
    if (read.error().scope == ErrorScope::call)
      return breach("a payload to be read lies in memory that it has not got");
    return std::unexpected(read.error());
  }
  if (slot.state.load(std::memory_order_acquire) == read_withdrawn) return false;
  return breach("a payload to be read does not hold still");
}

// ---- By parts ----

Result<void> Incoming::begin_long(const Record& record) {
  if (long_ || (record.head_bytes == 0 && record.payload_bytes == 0)) return breach("a message within another");
  long_.emplace();
  long_->head = Buffer::allocate(record.head_bytes);
  long_->payload_bytes = record.payload_bytes;
  advance(sizeof record);
  return {};
}

Result<void> Incoming::take_part(const Record& record, Gate& gate) {
  if (!long_ || record.payload_bytes != 0 || record.head_bytes == 0 ||
      record.head_bytes > long_->total() - long_->done) {
    return breach("a part of no message");
  }
  const std::byte* from = ring_.at() + sizeof record;
  std::size_t left = record.head_bytes;
  if (long_->done < long_->head.size()) {
    const std::size_t part = std::min(left, long_->head.size() - long_->done);
    std::memcpy(long_->head.mutable_data() + long_->done, from, part);
    long_->done += part;
    from += part;
    left -= part;
  }
  if (long_->done == long_->head.size() || left != 0) {
    if (!long_->placed) place_long(gate);
    if (gate.ended) return {};
    if (long_->memory != nullptr && left != 0) {
      std::memcpy(long_->memory + (long_->done - long_->head.size()), from, left);
    }
    long_->done += left;
  }
  advance(sizeof record + aligned(record.head_bytes));
  if (long_->done != long_->total()) return {};
  if (gate.open()) {
    end_long(gate);
  } else {
    held_ = true;
  }
  return {};
}

void Incoming::place_long(Gate& gate) {
  long_->placed = true;
  Placement placement;
  if (long_->payload_bytes >= limits_.placed_bytes_min) {
    placement = gate.sink->place(long_->head.bytes(), long_->payload_bytes);
  }
  if (gate.ended || long_->payload_bytes == 0) return;
  switch (placement.kind) {
    case Placement::Kind::own:
      long_->own = Buffer::allocate(long_->payload_bytes);
      long_->memory = long_->own.mutable_data();
      break;
    case Placement::Kind::given:
      assert(placement.memory.size() >= long_->payload_bytes);
      long_->memory = placement.memory.data();
      break;
    case Placement::Kind::discard: break;
  }
}

void Incoming::end_long(Gate& gate) {
  const LongMessage whole = std::move(*long_);
  long_.reset();
  const bool discarded = whole.payload_bytes != 0 && whole.memory == nullptr;
  gate.sink->on_message({.head = whole.head.bytes(),
                         .payload = whole.memory == nullptr ? Bytes() : Bytes(whole.memory, whole.payload_bytes),
                         .head_block = whole.head.block(),
                         .payload_block = whole.own.block(),
                         .discarded = discarded});
}

void Incoming::unplace(const std::byte* memory) noexcept {
  if (memory == nullptr) return;
  if (placement_ && placement_->kind == Placement::Kind::given && placement_->memory.data() == memory) {
    placement_ = Placement{.kind = Placement::Kind::discard};
  }
  if (long_ && long_->memory == memory) long_->memory = nullptr;
}

}  // namespace hawser::transport::shm
