#include "transport/rdma/protocol/sender.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transport/common/gather.h"

namespace hawser::transport::rdma {
namespace {

// Clears padding, so that it does not leak data that was sent before.
void zero_padding(std::byte* begin, std::size_t bytes) noexcept {
  std::memset(begin + bytes, 0, align_up(bytes) - bytes);
}

}  // namespace

RdmaSender::RdmaSender(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const RegisteredMemory& first,
                       const RegisteredMemory& control, const SenderOptions& options)
    : work_queue_(work_queue),
      pool_(std::move(pool)),
      options_(options),
      control_(control),
      transfers_(options.rendezvous_max) {
  chunks_.push(std::make_unique<Chunk>(Chunk{.memory = first}));
}

RdmaSender::~RdmaSender() {
  clear();
  while (!chunks_.empty()) pool_->release(chunks_.pop()->memory);
  if (spare_ != nullptr) pool_->release(spare_->memory);
  pool_->release(control_);
}

// ---- Room

std::size_t RdmaSender::room() noexcept {
  const std::size_t chunk_end = options_.chunk_bytes - tail_bytes;
  const std::size_t packet_end = current().open + options_.packet_bytes_max - tail_bytes;
  const std::size_t end = std::min(chunk_end, packet_end);
  return current().filled < end ? end - current().filled : 0;
}

// Makes room for `bytes` contiguous bytes, if necessary in another packet or chunk.
bool RdmaSender::make_room(std::size_t bytes) {
  if (room() >= bytes) return true;
  if (open_bytes() != 0) {
    close_packet();
    if (room() >= bytes) return true;
  }
  return next_chunk() && room() >= bytes;
}

bool RdmaSender::next_chunk() {
  recycle();
  if (current().filled == 0) return true;
  if (chunks_.size() >= options_.send_window) return false;
  if (spare_ == nullptr) {
    const auto memory = pool_->acquire(options_.chunk_bytes, MemoryPool::Use::connection);
    if (!memory) return false;  // At the watermark, sending continues with the existing chunks.
    spare_ = std::make_unique<Chunk>(Chunk{.memory = *memory});
  }
  close_packet();
  chunks_.push(std::move(spare_));
  return true;
}

// Releases chunks whose packets have all been sent.
void RdmaSender::recycle() {
  work_queue_.submit();  // The device reads inline data until then.
  const auto is_free = [this](const Chunk& chunk) {
    return chunk.waiting == 0 && chunk.open == chunk.filled && work_queue_.slots.is_done(chunk.last_id);
  };
  while (chunks_.size() > 1 && is_free(*chunks_.front())) {
    std::unique_ptr<Chunk> free = chunks_.pop();
    if (spare_ == nullptr) {
      free->filled = free->open = 0;
      spare_ = std::move(free);
    } else {
      pool_->release(free->memory);
    }
  }
  if (is_free(current())) current().filled = current().open = 0;
}

bool RdmaSender::on_completed() {
  recycle();
  return !waiting_.empty() || !packets_.empty() || open_bytes() != 0 || !done_.empty() || closing_;
}

// ---- Messages

std::byte* RdmaSender::reserve(std::size_t head_bytes) {
  const std::size_t needed = RecordHeader::bytes + align_up(head_bytes);
  reserved_ = {};
  if (waiting_.empty() && !pumping_ && (room() >= needed || (room() < fragment_bytes_min && make_room(needed)))) {
    return end() + RecordHeader::bytes;
  }
  reserved_ = Buffer::allocate(std::max<std::size_t>(head_bytes, 1));
  return reserved_.mutable_data();
}

void RdmaSender::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  const std::size_t payload_bytes = total_bytes(payload);
  committed_ += head_bytes + payload_bytes;
  const bool in_place = reserved_.block() == nullptr;
  const Buffer head = std::exchange(reserved_, {});
  const Bytes head_view(in_place ? end() + RecordHeader::bytes : head.data(), head_bytes);

  if (payload_bytes > options_.eager_bytes_max && !transfers_.full()) {
    // The transfer notifies the owner, unless there is a copy.
    Buffer record = owner == nullptr ? Buffer() : make_rendezvous(head_view, payload, payload_bytes, owner);
    const bool copied = record.empty() && payload_bytes <= options_.copied_bytes_max &&
                        transfers_.copied_bytes() + payload_bytes <= copies_bytes_max &&
                        message_record_bytes(head_bytes, payload_bytes) > options_.packet_bytes_max - tail_bytes;
    if (copied) record = make_copied_rendezvous(head_view, payload, payload_bytes);
    if (!record.empty()) {
      waiting_.push({.head = std::move(record), .payload_bytes = payload_bytes, .rendezvous = true});
      pump();
      if (copied) {
        // Copying produced that many bytes, so the peer reads while this side continues.
        post_packets(1);
        work_queue_.submit();
        if (owner != nullptr) owner->on_send_complete();
      }
      return;
    }
  }
  if (in_place && message_record_bytes(head_bytes, payload_bytes) <= room()) {
    pack_whole(head_bytes, payload, payload_bytes);
    post_early();
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  WaitingMessage rest;
  rest.pieces = acquire_pieces();
  rest.payload_bytes = payload_bytes;
  rest.head = in_place ? Buffer::copy_of(head_view) : head.slice(0, head_bytes);
  rest.owner = owner;
  if (owner != nullptr) {
    rest.pieces.assign(payload.begin(), payload.end());
  } else if (payload_bytes != 0) {
    rest.copy = Buffer::allocate(payload_bytes);
    gather(rest.copy.mutable_data(), payload);
    rest.pieces.push_back({rest.copy.data(), payload_bytes});
  }
  waiting_.push(std::move(rest));
  pump();
}

void RdmaSender::pack_whole(std::size_t head_bytes, std::span<const ConstBuffer> payload, std::size_t payload_bytes) {
  std::byte* const at = end();
  const auto carried = static_cast<std::uint32_t>(head_bytes + payload_bytes);
  write_header(at, {RdmaRecordKind::message, static_cast<std::uint32_t>(head_bytes),
                    static_cast<std::uint32_t>(payload_bytes), carried});
  std::byte* const body = at + RecordHeader::bytes;
  zero_padding(body, head_bytes);
  gather(body + align_up(head_bytes), payload);
  zero_padding(body + align_up(head_bytes), payload_bytes);
  current().filled += message_record_bytes(head_bytes, payload_bytes);
  packed_ += carried;
}

// Like make_rendezvous(), for a copy of the payload in memory that the peer may read. Empty if there is no room for the
// copy.
Buffer RdmaSender::make_copied_rendezvous(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes) {
  const MemoryPool::PayloadBlock copy = pool_->acquire_block(payload_bytes);
  if (copy.block == nullptr) return {};
  gather(copy.memory.data, payload);
  const ConstBuffer whole{copy.memory.data, payload_bytes};
  Buffer record = make_rendezvous(head, std::span(&whole, 1), payload_bytes, nullptr, payload_bytes);
  copy.block->release();
  return record;
}

// Returns a record with the addresses of the payload. Empty if a part of the payload is not in memory that the peer may
// read.
Buffer RdmaSender::make_rendezvous(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes,
                                   SendCompletion* owner, std::size_t copied_bytes) {
  if (payload.size() > table_pieces_max) return {};
  std::vector<Block*>& blocks = blocks_;
  std::vector<RdmaRemoteBuffer>& pieces = remote_pieces_;
  blocks.clear();
  pieces.clear();
  std::size_t literals = 0;
  bool reachable = true;
  bool user = false;
  for (const ConstBuffer& piece : payload) {
    if (piece.size == 0) continue;
    RdmaRemoteBuffer remote{.size = static_cast<std::uint32_t>(piece.size)};
    if (piece.size <= literal_bytes_max) {
      literals += align_up(piece.size);
    } else if (const MemoryPool::PayloadBlock found = pool_->retain(piece.data, piece.size); found.block != nullptr) {
      blocks.push_back(found.block);
      user = user || found.user;
      remote.address = reinterpret_cast<std::uintptr_t>(piece.data);
      remote.key = found.memory.remote_key;
    } else {
      reachable = false;
      break;
    }
    pieces.push_back(remote);
  }
  const std::size_t table = table_head_bytes + pieces.size() * RdmaRemoteBuffer::bytes + literals;
  const std::size_t record = RecordHeader::bytes + align_up(head.size()) + align_up(table);
  if (!reachable || record > rendezvous_record_max()) {
    for (Block* block : blocks) block->release();
    return {};
  }
  if (user) pool_->count_user_send();
  Buffer made = Buffer::allocate(record);
  std::byte* at = made.mutable_data();
  std::memset(at, 0, record);
  write_header(at, {RdmaRecordKind::rendezvous, static_cast<std::uint32_t>(head.size()),
                    static_cast<std::uint32_t>(payload_bytes), static_cast<std::uint32_t>(table)});
  at += RecordHeader::bytes;
  std::memcpy(at, head.data(), head.size());
  at += align_up(head.size());
  store_le(at, transfers_.begin(blocks, owner, copied_bytes));
  store_le(at + 4, static_cast<std::uint32_t>(pieces.size()));
  at += table_head_bytes;
  for (const RdmaRemoteBuffer& piece : pieces) {
    write_piece(at, piece);
    at += RdmaRemoteBuffer::bytes;
  }
  for (const ConstBuffer& piece : payload) {
    if (piece.size == 0 || piece.size > literal_bytes_max) continue;
    std::memcpy(at, piece.data, piece.size);
    at += align_up(piece.size);
  }
  return made;
}

std::vector<ConstBuffer> RdmaSender::acquire_pieces() {
  if (spare_pieces_.empty()) return {};
  std::vector<ConstBuffer> pieces = std::move(spare_pieces_.back());
  spare_pieces_.pop_back();
  return pieces;
}

void RdmaSender::release_pieces(std::vector<ConstBuffer> pieces) {
  if (pieces.capacity() == 0 || spare_pieces_.size() == spare_pieces_max) return;
  pieces.clear();
  spare_pieces_.push_back(std::move(pieces));
}

// Packs waiting messages as far as there is room, and sends packet by packet, so that copying and sending overlap.
void RdmaSender::pump() {
  if (std::exchange(pumping_, true)) return;
  while (!waiting_.empty() && pack_some(waiting_.front())) {
    post_early();
    const WaitingMessage& front = waiting_.front();
    const std::size_t total = front.rendezvous ? front.head.size() : front.head.size() + front.payload_bytes;
    if (front.done != total) continue;
    // An owner that is notified may commit more.
    WaitingMessage done = waiting_.pop();
    release_pieces(std::move(done.pieces));
    if (done.owner != nullptr) done.owner->on_send_complete();
  }
  pumping_ = false;
}

// Packs one record of `message`. False if there is no room.
bool RdmaSender::pack_some(WaitingMessage& message) {
  const std::size_t head_bytes = message.head.size();
  if (message.rendezvous) {
    if (!make_room(head_bytes)) return false;
    std::memcpy(end(), message.head.data(), head_bytes);
    current().filled += head_bytes;
    packed_ += load_le<std::uint32_t>(message.head.data() + 4) + message.payload_bytes;
    message.done = head_bytes;
    return true;
  }
  const std::size_t total = head_bytes + message.payload_bytes;
  if (message.done == 0) {
    const std::size_t whole = message_record_bytes(head_bytes, message.payload_bytes);
    if (whole <= room() || (whole <= fragment_bytes_min && make_room(whole))) {
      std::memcpy(end() + RecordHeader::bytes, message.head.data(), head_bytes);
      pack_whole(head_bytes, message.pieces, message.payload_bytes);
      message.done = total;
      return true;
    }
  }
  if (!make_room(RecordHeader::bytes + fragment_bytes_min)) return false;
  const bool first = message.done == 0;
  // The first part never contains all bytes. That would be a whole message, which needs more padding.
  const std::size_t left = first ? total - 1 : total - message.done;
  const std::size_t carried = std::min(room() - RecordHeader::bytes, left);
  write_header(
      end(),
      {first ? RdmaRecordKind::begin : RdmaRecordKind::fragment, static_cast<std::uint32_t>(first ? head_bytes : 0),
       static_cast<std::uint32_t>(first ? message.payload_bytes : 0), static_cast<std::uint32_t>(carried)});
  std::byte* to = end() + RecordHeader::bytes;
  std::size_t from = message.done;
  std::size_t missing = carried;
  const auto copy = [&](const std::byte* data, std::size_t size) {
    if (from >= size) {
      from -= size;
      return;
    }
    const std::size_t part = std::min(size - from, missing);
    std::memcpy(to, data + from, part);
    to += part;
    missing -= part;
    from = 0;
  };
  copy(message.head.data(), head_bytes);
  for (const ConstBuffer& piece : message.pieces) {
    if (missing == 0) break;
    copy(piece.data, piece.size);
  }
  zero_padding(end() + RecordHeader::bytes, carried);
  current().filled += RecordHeader::bytes + align_up(carried);
  message.done += carried;
  packed_ += carried;
  return true;
}

void RdmaSender::copy_and_release(SendCompletion& owner) {
  transfers_.forget(owner);
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    WaitingMessage& message = waiting_[i];
    if (message.owner != &owner) continue;
    message.copy = Buffer::allocate(message.payload_bytes);
    gather(message.copy.mutable_data(), message.pieces);
    message.pieces.assign(1, {message.copy.data(), message.payload_bytes});
    message.owner = nullptr;
  }
}

// ---- Packets

void RdmaSender::close_packet() noexcept {
  Chunk& chunk = current();
  if (chunk.open == chunk.filled) return;
  packets_.push({&chunk, chunk.open, chunk.filled, packed_});
  chunk.open = chunk.filled;
  ++chunk.waiting;
}

// Apart from credits and slots, at most send_window packets are on the wire, so that messages that are committed
// meanwhile are collected in the next packet.
bool RdmaSender::may_post_packet() {
  while (!on_wire_.empty() && work_queue_.slots.is_done(on_wire_.front())) on_wire_.pop();
  return on_wire_.size() < options_.send_window && work_queue_.credits.may_send_data() &&
         work_queue_.slots.may_post_data();
}

void RdmaSender::post_packets(std::size_t open_bytes_min) {
  while (may_post_packet()) {
    if (packets_.empty() && open_bytes() >= open_bytes_min) close_packet();
    if (packets_.empty()) return;
    post(packets_.pop());
  }
}

void RdmaSender::post(const Packet& packet) {
  Chunk& chunk = *packet.chunk;
  --chunk.waiting;
  std::size_t bytes = packet.end - packet.begin;
  Immediate immediate;
  if (!done_.empty() && packet.end == chunk.filled) {
    // The room at the packet's end is reserved for the ids.
    const std::size_t count = std::min(done_.size(), done_per_packet);
    std::byte* const at = chunk.memory.data + packet.end;
    std::memcpy(at, done_.data(), count * 4);
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    immediate.done = static_cast<std::uint32_t>(count);
    bytes += count * 4;
    chunk.filled = chunk.open = packet.end + align_up(count * 4);
  }
  const bool inlined = bytes <= work_queue_.inline_bytes();
  if (!inlined) unsignalled_ += bytes;
  // A quarter of the window at a time is released, and always the end of a chunk and a full window.
  const bool must_signal = (!inlined && (unsignalled_ >= options_.chunk_bytes / 4 ||
                                         options_.chunk_bytes - packet.end < options_.chunk_bytes / 4)) ||
                           on_wire_.size() + 1 >= options_.send_window;
  if (must_signal) unsignalled_ = 0;
  const Segment segment{chunk.memory.data + packet.begin, static_cast<std::uint32_t>(bytes), chunk.memory.local_key};
  const std::uint64_t id = work_queue_.send(segment, immediate, must_signal);
  if (!inlined) chunk.last_id = id;
  on_wire_.push(id);
  sent_ = packet.position;
}

void RdmaSender::post_early() {
  if (packets_.empty() && open_bytes() < early_flush_bytes) return;
  post_packets(early_flush_bytes);
  work_queue_.submit();
}

// Sends grants and ids of completed transfers if no data packet has carried them.
void RdmaSender::post_control() {
  while (work_queue_.credits.may_send_control() && work_queue_.slots.may_post_control()) {
    const bool fin = closing_ && fin_id_ == 0 && waiting_.empty() && packets_.empty() && open_bytes() == 0 &&
                     transfers_.open() == 0 && done_.size() <= done_per_packet;
    if (done_.empty() && !fin && !work_queue_.credits.grant_due()) return;
    Segment segment;
    Immediate immediate{.fin = fin};
    std::uint64_t* holder = nullptr;
    if (!done_.empty()) {
      holder = &control_ids_[next_control_];
      if (!work_queue_.slots.is_done(*holder)) return;
      std::byte* const at = control_.data + next_control_ * tail_bytes;
      next_control_ = (next_control_ + 1) % control_slots;
      const std::size_t count = std::min(done_.size(), done_per_packet);
      std::memcpy(at, done_.data(), count * 4);
      done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
      immediate.done = static_cast<std::uint32_t>(count);
      segment = {at, static_cast<std::uint32_t>(count * 4), control_.local_key};
    }
    const std::uint64_t id = work_queue_.send(segment, immediate, fin);
    if (holder != nullptr) *holder = id;
    if (fin) fin_id_ = id;
  }
}

void RdmaSender::mark_end() {
  if (work_queue_.slots.last_is_signalled() || !work_queue_.credits.may_send_control() ||
      !work_queue_.slots.may_post_control())
    return;
  work_queue_.send({}, {}, true);
  work_queue_.submit();
}

void RdmaSender::flush() {
  pump();
  post_packets(1);
  post_control();
  recycle();
}

bool RdmaSender::transfer_done(std::uint32_t transfer) { return transfers_.end(transfer); }

void RdmaSender::clear() noexcept {
  while (!waiting_.empty()) {
    const WaitingMessage message = waiting_.pop();
    if (message.owner != nullptr) message.owner->on_send_complete();
  }
  while (!packets_.empty()) packets_.pop();
  transfers_.release_owners();
}

}  // namespace hawser::transport::rdma
