#include "transport/shm/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/common/gather.h"

namespace hawser::transport::shm {
namespace {

// Copies the bytes [from, from + size) of the pieces.
void gather_part(std::byte* to, std::span<const ConstBuffer> pieces, std::size_t from, std::size_t size) noexcept {
  for (const ConstBuffer& piece : pieces) {
    if (size == 0) return;
    if (from >= piece.size) {
      from -= piece.size;
      continue;
    }
    const std::size_t part = std::min(size, piece.size - from);
    std::memcpy(to, piece.data + from, part);
    to += part;
    size -= part;
    from = 0;
  }
}

Buffer copy_of(std::span<const ConstBuffer> pieces, std::size_t bytes) {
  Buffer copy = Buffer::allocate(bytes);
  gather(copy.mutable_data(), pieces);
  return copy;
}

constexpr std::uint32_t narrow(std::size_t bytes) noexcept { return static_cast<std::uint32_t>(bytes); }

}  // namespace

ShmSender::ShmSender(const SharedMemory& memory, std::size_t side, const ShmOptions& options, PeerWaker& waker) noexcept
    : eager_bytes_(options.eager_bytes),
      direct_read_bytes_min_(options.direct_read_bytes_min),
      early_publish_bytes_(options.early_publish_bytes),
      head_bytes_max_(memory.sizes().ring / 4),
      waker_(waker),
      ring_(memory.ring(side), memory.sizes().ring, memory.control().rings[side]),
      slab_(memory, side),
      slots_(memory.control().reads[side]),
      part_(memory.part(side)),
      mark_(memory.mark()) {
  for (std::size_t slot = reads_max; slot != 0; --slot) free_slots_.push_back(slot - 1);
}

std::byte* ShmSender::reserve(std::size_t head_bytes) {
  if (queue_.empty() && head_bytes <= head_bytes_max_ && ring_.has_room(sizeof(RingRecord) + aligned(head_bytes)))
      [[likely]] {
    reserved_ = {};
    return ring_.at() + sizeof(RingRecord);
  }
  reserved_ = Buffer::allocate(head_bytes);
  return reserved_.mutable_data();
}

std::byte* ShmSender::reserve_payload(std::size_t bytes) noexcept {
  // A message that was not committed has left it.
  if (reserved_region_ != SlabWriter::none) slab_.give_back(std::exchange(reserved_region_, SlabWriter::none));
  const bool read = bytes >= direct_read_bytes_min_ && waker_.reads();
  if (bytes <= eager_bytes_ || read || reserved_.block() != nullptr) return nullptr;
  reserved_region_ = slab_.acquire(bytes);
  return reserved_region_ == SlabWriter::none ? nullptr : slab_.at(reserved_region_);
}

void ShmSender::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  const std::size_t payload_bytes = total_bytes(payload);
  committed_ += sizeof(RingRecord) + head_bytes + payload_bytes;
  if (reserved_.block() == nullptr) [[likely]] {
    const Written written = write(nullptr, head_bytes, payload, payload_bytes, owner);
    if (written == Written::all || written == Written::loaned) [[likely]] {
      written_ = committed_;
      if (written_ - sent_ >= early_bytes_) publish_early();
      if (written == Written::all && owner != nullptr) owner->on_send_complete();
      return;
    }
    reserved_ = Buffer::copy_of(Bytes(ring_.at() + sizeof(RingRecord), head_bytes));
  }
  enqueue(head_bytes, payload, payload_bytes, owner);
  advance();
}

void ShmSender::enqueue(std::size_t head_bytes, std::span<const ConstBuffer> payload, std::size_t payload_bytes,
                        SendCompletion* owner) {
  Queued message;
  message.head = std::exchange(reserved_, {}).slice(0, head_bytes);
  message.payload_bytes = payload_bytes;
  if (payload_bytes == 0) {
    queue_.push_back(std::move(message));
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  message.owner = owner;
  if (owner == nullptr) {
    message.copy = copy_of(payload, payload_bytes);
    message.pieces = {{message.copy.data(), payload_bytes}};
  } else {
    message.pieces.assign(payload.begin(), payload.end());
  }
  queue_.push_back(std::move(message));
}

// Writes a message in one piece. If `head` is null, the head is in its place already.
ShmSender::Written ShmSender::write(const std::byte* head, std::size_t head_bytes, std::span<const ConstBuffer> payload,
                                    std::size_t payload_bytes, SendCompletion* owner) {
  const bool eager = payload_bytes <= eager_bytes_;
  const std::size_t head_room = sizeof(RingRecord) + aligned(head_bytes);
  const std::size_t room = head_room + (eager ? aligned(payload_bytes) : 0);
  if (head_bytes > head_bytes_max_) return Written::by_parts;
  if (!ring_.has_room(room)) return Written::no_room;
  std::byte* const at = ring_.at();
  RingRecord record{RingRecordKind::whole, narrow(head_bytes), narrow(payload_bytes), 0};
  Written written = Written::all;
  if (eager) [[likely]] {
    if (payload_bytes != 0) gather(at + head_room, payload);
  } else if (reserved_region_ != SlabWriter::none && payload.front().data == slab_.at(reserved_region_)) {
    record.kind = RingRecordKind::slab;
    record.where = narrow(std::exchange(reserved_region_, SlabWriter::none));
  } else if (payload_bytes >= direct_read_bytes_min_ && offer_read(payload, payload_bytes, owner, record)) {
    written = Written::loaned;
  } else if (const std::size_t region = slab_.acquire(payload_bytes); region != SlabWriter::none) {
    gather(slab_.at(region), payload);
    record.kind = RingRecordKind::slab;
    record.where = narrow(region);
  } else if (offer_read(payload, payload_bytes, owner, record)) {
    written = Written::loaned;
  } else {
    return Written::by_parts;
  }
  if (head != nullptr) std::memcpy(at + sizeof record, head, head_bytes);
  std::memcpy(at, &record, sizeof record);
  ring_.advance(room);
  return written;
}

bool ShmSender::offer_read(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion* owner,
                           RingRecord& record) {
  if (owner == nullptr || free_slots_.empty() || direct_read_bytes_min_ == SIZE_MAX || !waker_.reads()) return false;
  Read read{.owner = owner, .bytes = payload_bytes};
  for (const ConstBuffer& piece : payload) {
    if (piece.size == 0) continue;
    if (read.count == read.pieces.size()) return false;
    read.pieces[read.count++] = piece;
  }
  read.slot = free_slots_.back();
  free_slots_.pop_back();
  ReadSlot& slot = slots_[read.slot];
  for (std::size_t i = 0; i < read.count; ++i) {
    slot.pieces[i].address.store(reinterpret_cast<std::uintptr_t>(read.pieces[i].data), std::memory_order_relaxed);
    slot.pieces[i].bytes.store(read.pieces[i].size, std::memory_order_relaxed);
  }
  slot.count.store(narrow(read.count), std::memory_order_relaxed);
  slot.state.store(read_offered, std::memory_order_release);
  record.kind = RingRecordKind::read;
  record.where = narrow(read.slot);
  reading_bytes_ += payload_bytes;
  reads_.push_back(std::move(read));
  return true;
}

// Writes as many parts as there is room for. True when all are written.
bool ShmSender::write_parts(Queued& message) {
  if (!message.begun) {
    if (!ring_.has_room(sizeof(RingRecord))) return false;
    const RingRecord record{RingRecordKind::long_begin, narrow(message.head.size()), narrow(message.payload_bytes), 0};
    std::memcpy(ring_.at(), &record, sizeof record);
    ring_.advance(sizeof record);
    written_ += sizeof record;
    message.begun = true;
  }
  const std::size_t total = message.head.size() + message.payload_bytes;
  // Uses large parts, so that there are few. A small part now is still better than none.
  for (std::size_t part_max = ring_.bytes() / 4; message.done != total;) {
    const std::size_t part = std::min(total - message.done, part_max);
    if (!ring_.has_room(sizeof(RingRecord) + aligned(part))) {
      if (part_max == ring_.bytes() / 16) return false;
      part_max = ring_.bytes() / 16;
      continue;
    }
    const RingRecord record{RingRecordKind::long_part, narrow(part), 0, 0};
    std::byte* to = ring_.at();
    std::memcpy(to, &record, sizeof record);
    to += sizeof record;
    std::size_t from_head = 0;
    if (message.done < message.head.size()) {
      from_head = std::min(part, message.head.size() - message.done);
      std::memcpy(to, message.head.data() + message.done, from_head);
    }
    gather_part(to + from_head, message.pieces, message.done + from_head - message.head.size(), part - from_head);
    ring_.advance(sizeof record + aligned(part));
    message.done += part;
    written_ += part;
    publish();
  }
  return true;
}

bool ShmSender::advance() {
  bool worked = take_reads();
  if (!writing_queue_) {
    writing_queue_ = true;
    worked |= write_queue();
    writing_queue_ = false;
    if (finishing_) worked |= write_end();
  }
  return worked;
}

// An owner that is notified may commit more messages. These are written here too, in order.
bool ShmSender::write_queue() {
  bool worked = false;
  while (!queue_.empty()) {
    Queued& front = queue_.front();
    Written written = front.begun
                          ? Written::by_parts
                          : write(front.head.data(), front.head.size(), front.pieces, front.payload_bytes, front.owner);
    if (written == Written::by_parts) {
      const std::size_t before = front.done;
      written = write_parts(front) ? Written::all : Written::no_room;
      worked |= front.done != before;
    } else if (written != Written::no_room) {
      written_ += sizeof(RingRecord) + front.head.size() + front.payload_bytes;
    }
    if (written == Written::no_room) return worked;
    worked = true;
    const Queued done = std::move(front);
    queue_.pop_front();
    if (written_ - sent_ >= early_bytes_) publish_early();
    if (written == Written::all && done.owner != nullptr) done.owner->on_send_complete();
  }
  return worked;
}

// Releases the payloads that the peer has read.
bool ShmSender::take_reads() {
  bool worked = false;
  for (std::size_t i = 0; i < reads_.size();) {
    const std::uint32_t state = slots_[reads_[i].slot].state.load(std::memory_order_acquire);
    if (state == read_wanted) {
      fill_part(reads_[i]);
      worked = true;
    }
    if (state != read_done) {
      ++i;
      continue;
    }
    const Read done = std::move(reads_[i]);
    if (i + 1 != reads_.size()) reads_[i] = std::move(reads_.back());
    reads_.pop_back();
    free_slots_.push_back(done.slot);
    reading_bytes_ -= done.bytes;
    worked = true;
    if (done.owner != nullptr) done.owner->on_send_complete();
  }
  return worked;
}

// Copies the next part of a payload that the peer does not read. Only one such payload is copied at a time, because the
// peer processes messages in order.
void ShmSender::fill_part(Read& read) {
  const std::size_t part = std::min(part_bytes, read.bytes - read.done);
  if (part == 0) {
    broken_ = true;
    return;
  }
  gather_part(part_, std::span(read.pieces.data(), read.count), read.done, part);
  read.done += part;
  slots_[read.slot].state.store(read_filled, std::memory_order_release);
  waker_.wake(wants_messages);
}

bool ShmSender::can_advance() const noexcept {
  if ((!queue_.empty() || (finishing_ && !finished_)) && ring_.has_moved()) return true;
  return std::any_of(reads_.begin(), reads_.end(), [&](const Read& read) {
    const std::uint32_t state = slots_[read.slot].state.load(std::memory_order_relaxed);
    return state == read_done || state == read_wanted;
  });
}

void ShmSender::publish() {
  if (ring_.unpublished() == 0) return;
  ring_.publish();
  sent_ = written_;
  waker_.wake(wants_messages);
}

void ShmSender::finish() {
  finishing_ = true;
  write_end();
}

bool ShmSender::write_end() {
  if (finished_ || !queue_.empty() || !ring_.has_room(sizeof(RingRecord))) return false;
  const RingRecord record{RingRecordKind::end, 0, 0, 0};
  std::memcpy(ring_.at(), &record, sizeof record);
  ring_.advance(sizeof record);
  finished_ = true;
  publish();
  return true;
}

void ShmSender::copy_and_release(SendCompletion& owner) {
  for (Queued& message : queue_) {
    if (message.owner != &owner) continue;
    message.copy = copy_of(message.pieces, message.payload_bytes);
    message.pieces = {{message.copy.data(), message.payload_bytes}};
    message.owner = nullptr;
  }
  for (Read& read : reads_) {
    if (read.owner != &owner) continue;
    read.owner = nullptr;
    read.copy = copy_of(std::span(read.pieces.data(), read.count), read.bytes);
    read.pieces[0] = {read.copy.data(), read.bytes};
    read.count = 1;
    if (!mark_.is_ours()) continue;
    ReadSlot& slot = slots_[read.slot];
    slot.moved.store(reinterpret_cast<std::uintptr_t>(read.copy.data()), std::memory_order_relaxed);
    // A peer that is reading now detects the change and reads again. If the peer is done or requests parts, the slot
    // does not change.
    std::uint32_t offered = read_offered;
    slot.state.compare_exchange_strong(offered, read_moved, std::memory_order_acq_rel);
  }
}

void ShmSender::clear() noexcept {
  if (std::exchange(ended_, true)) return;
  std::deque<Queued> queue = std::exchange(queue_, {});
  std::vector<Read> reads = std::exchange(reads_, {});
  for (const Read& read : reads) {
    if (!mark_.is_ours()) break;
    // Acquire: the owner may write to the payload only behind the peer's reads.
    std::uint32_t state = slots_[read.slot].state.load(std::memory_order_acquire);
    while (state != read_done && !slots_[read.slot].state.compare_exchange_weak(state, read_withdrawn)) {
    }
  }
  dropped_bytes_ = static_cast<std::size_t>(committed_ - sent_);
  reading_bytes_ = 0;
  for (const Queued& message : queue) {
    if (message.owner != nullptr) message.owner->on_send_complete();
  }
  for (const Read& read : reads) {
    if (read.owner != nullptr) read.owner->on_send_complete();
  }
}

}  // namespace hawser::transport::shm
