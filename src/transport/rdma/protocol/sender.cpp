#include "transport/rdma/protocol/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

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
      options_(options),
      control_(pool, control),
      chunks_(work_queue, pool, first,
              {.chunk_bytes = options.chunk_bytes,
               .packet_bytes_max = options.packet_bytes_max,
               .chunks_max = options.send_window}),
      offers_(std::move(pool), rendezvous_record_max(options), options.rendezvous_max) {}

bool RdmaSender::on_completed() {
  chunks_.recycle();
  return !waiting_.empty() || !chunks_.empty() || chunks_.open_bytes() != 0 || !done_.empty() || closing_;
}

// ---- Messages

std::byte* RdmaSender::reserve(std::size_t head_bytes) {
  const std::size_t needed = RecordHeader::bytes + align_up(head_bytes);
  reserved_ = {};
  if (waiting_.empty() && !pumping_ &&
      (chunks_.room() >= needed || (chunks_.room() < fragment_bytes_min && chunks_.make_room(needed)))) {
    return chunks_.end() + RecordHeader::bytes;
  }
  reserved_ = Buffer::allocate(std::max<std::size_t>(head_bytes, 1));
  return reserved_.mutable_data();
}

void RdmaSender::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  const std::size_t payload_bytes = total_bytes(payload);
  committed_ += head_bytes + payload_bytes;
  const bool in_place = reserved_.block() == nullptr;
  const Buffer head = std::exchange(reserved_, {});
  const Bytes head_view(in_place ? chunks_.end() + RecordHeader::bytes : head.data(), head_bytes);

  if (payload_bytes > options_.eager_bytes_max && !offers_.full()) {
    // The transfer notifies the owner, unless there is a copy.
    Buffer record = owner == nullptr ? Buffer() : offers_.offer(head_view, payload, payload_bytes, owner);
    const bool copied = record.empty() && payload_bytes <= options_.copied_bytes_max &&
                        offers_.may_copy(payload_bytes) &&
                        message_record_bytes(head_bytes, payload_bytes) > options_.packet_bytes_max - tail_bytes;
    if (copied) record = offers_.offer_copy(head_view, payload, payload_bytes);
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
  if (in_place && message_record_bytes(head_bytes, payload_bytes) <= chunks_.room()) {
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
  std::byte* const at = chunks_.end();
  const auto carried = static_cast<std::uint32_t>(head_bytes + payload_bytes);
  write_header(at, {RdmaRecordKind::message, static_cast<std::uint32_t>(head_bytes),
                    static_cast<std::uint32_t>(payload_bytes), carried});
  std::byte* const body = at + RecordHeader::bytes;
  zero_padding(body, head_bytes);
  gather(body + align_up(head_bytes), payload);
  zero_padding(body + align_up(head_bytes), payload_bytes);
  chunks_.written(message_record_bytes(head_bytes, payload_bytes), carried);
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
    if (!chunks_.make_room(head_bytes)) return false;
    std::memcpy(chunks_.end(), message.head.data(), head_bytes);
    chunks_.written(head_bytes, load_le<std::uint32_t>(message.head.data() + 4) + message.payload_bytes);
    message.done = head_bytes;
    return true;
  }
  const std::size_t total = head_bytes + message.payload_bytes;
  if (message.done == 0) {
    const std::size_t whole = message_record_bytes(head_bytes, message.payload_bytes);
    if (whole <= chunks_.room() || (whole <= fragment_bytes_min && chunks_.make_room(whole))) {
      std::memcpy(chunks_.end() + RecordHeader::bytes, message.head.data(), head_bytes);
      pack_whole(head_bytes, message.pieces, message.payload_bytes);
      message.done = total;
      return true;
    }
  }
  if (!chunks_.make_room(RecordHeader::bytes + fragment_bytes_min)) return false;
  const bool first = message.done == 0;
  // The first part never contains all bytes. That would be a whole message, which needs more padding.
  const std::size_t left = first ? total - 1 : total - message.done;
  const std::size_t carried = std::min(chunks_.room() - RecordHeader::bytes, left);
  write_header(
      chunks_.end(),
      {first ? RdmaRecordKind::begin : RdmaRecordKind::fragment, static_cast<std::uint32_t>(first ? head_bytes : 0),
       static_cast<std::uint32_t>(first ? message.payload_bytes : 0), static_cast<std::uint32_t>(carried)});
  std::byte* to = chunks_.end() + RecordHeader::bytes;
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
  zero_padding(chunks_.end() + RecordHeader::bytes, carried);
  chunks_.written(RecordHeader::bytes + align_up(carried), carried);
  message.done += carried;
  return true;
}

void RdmaSender::copy_and_release(SendCompletion& owner) {
  offers_.forget(owner);
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

// Apart from credits and slots, at most send_window packets are on the wire, so that messages that are committed
// meanwhile are collected in the next packet.
bool RdmaSender::may_post_packet() {
  while (!on_wire_.empty() && work_queue_.slots.is_done(on_wire_.front())) on_wire_.pop();
  return on_wire_.size() < options_.send_window && work_queue_.credits.may_send_data() &&
         work_queue_.slots.may_post_data();
}

void RdmaSender::post_packets(std::size_t open_bytes_min) {
  while (may_post_packet()) {
    if (chunks_.empty() && chunks_.open_bytes() >= open_bytes_min) chunks_.close_packet();
    if (chunks_.empty()) return;
    post(chunks_.pop());
  }
}

// Moves ids of completed transfers to `to`, as many as fit into a packet. Returns their number.
std::size_t RdmaSender::write_done(std::byte* to) {
  const std::size_t count = std::min(done_.size(), done_per_packet);
  std::memcpy(to, done_.data(), count * 4);
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void RdmaSender::post(const PacketChunks::Packet& packet) {
  std::size_t bytes = packet.end - packet.begin;
  Immediate immediate;
  if (!done_.empty()) {
    if (std::byte* const tail = chunks_.tail(packet); tail != nullptr) {
      const std::size_t count = write_done(tail);
      immediate.done = static_cast<std::uint32_t>(count);
      bytes += count * 4;
      chunks_.use_tail(packet, count * 4);
    }
  }
  const bool inlined = bytes <= work_queue_.inline_bytes();
  if (!inlined) unsignalled_ += bytes;
  // A quarter of the window at a time is released, and always the end of a chunk and a full window.
  const bool must_signal = (!inlined && (unsignalled_ >= options_.chunk_bytes / 4 || chunks_.ends_chunk(packet))) ||
                           on_wire_.size() + 1 >= options_.send_window;
  if (must_signal) unsignalled_ = 0;
  const RegisteredMemory& memory = packet.chunk->memory;
  const Segment segment{memory.data + packet.begin, static_cast<std::uint32_t>(bytes), memory.local_key};
  const std::uint64_t id = work_queue_.send(segment, immediate, must_signal);
  if (!inlined) chunks_.posted(packet, id);
  on_wire_.push(id);
  sent_ = packet.position;
}

void RdmaSender::post_early() {
  if (chunks_.empty() && chunks_.open_bytes() < early_flush_bytes) return;
  post_packets(early_flush_bytes);
  work_queue_.submit();
}

// Sends grants and ids of completed transfers if no data packet has carried them.
void RdmaSender::post_control() {
  while (work_queue_.credits.may_send_control() && work_queue_.slots.may_post_control()) {
    const bool fin = closing_ && fin_id_ == 0 && waiting_.empty() && chunks_.empty() && chunks_.open_bytes() == 0 &&
                     offers_.open() == 0 && done_.size() <= done_per_packet;
    if (done_.empty() && !fin && !work_queue_.credits.grant_due()) return;
    Segment segment;
    Immediate immediate{.fin = fin};
    const bool uses_slot = !done_.empty();
    if (uses_slot) {
      std::byte* const at = control_.next(work_queue_.slots);
      if (at == nullptr) return;
      const std::size_t count = write_done(at);
      immediate.done = static_cast<std::uint32_t>(count);
      segment = {at, static_cast<std::uint32_t>(count * 4), control_.local_key()};
    }
    const std::uint64_t id = work_queue_.send(segment, immediate, fin);
    if (uses_slot) control_.use(id);
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
  chunks_.recycle();
}

void RdmaSender::clear() noexcept {
  while (!waiting_.empty()) {
    const WaitingMessage message = waiting_.pop();
    if (message.owner != nullptr) message.owner->on_send_complete();
  }
  chunks_.drop_packets();
  offers_.release_owners();
}

}  // namespace hawser::transport::rdma
