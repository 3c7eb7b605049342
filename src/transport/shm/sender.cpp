#include "transport/shm/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/common/gather.h"

namespace hawser::transport::shm {
namespace {

constexpr std::uint32_t narrow(std::size_t bytes) noexcept { return static_cast<std::uint32_t>(bytes); }

}  // namespace

ShmSender::ShmSender(const SharedMemory& memory, std::size_t side, const ShmOptions& options, PeerWaker& waker)
    : eager_bytes_(options.eager_bytes),
      direct_read_bytes_min_(options.direct_read_bytes_min),
      early_publish_bytes_(options.early_publish_bytes),
      head_bytes_max_(memory.sizes().ring / 4),
      waker_(waker),
      ring_(memory.ring(side), memory.sizes().ring, memory.control().rings[side]),
      slab_(memory, side),
      offered_(memory, side) {}

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
    message.copy = gathered_copy(payload, payload_bytes);
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
  } else if (const std::size_t loan = loaned_region(payload, payload_bytes); loan != SlabWriter::none) {
    record.kind = RingRecordKind::slab;
    record.where = narrow(loan);
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

// The region of a payload that is one piece of a loan, or `none`.
std::size_t ShmSender::loaned_region(std::span<const ConstBuffer> payload, std::size_t payload_bytes) noexcept {
  const ConstBuffer& first = payload.front();
  return first.size == payload_bytes ? slab_.send_loan(first.data, payload_bytes) : SlabWriter::none;
}

bool ShmSender::offer_read(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion* owner,
                           RingRecord& record) {
  if (owner == nullptr || direct_read_bytes_min_ == SIZE_MAX || !waker_.reads()) return false;
  const std::size_t slot = offered_.offer(payload, payload_bytes, *owner);
  if (slot == OfferedPayloads::none) return false;
  record.kind = RingRecordKind::read;
  record.where = narrow(slot);
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
  bool worked = offered_.advance(waker_);
  if (!writing_queue_) {
    writing_queue_ = true;
    worked |= write_queue();
    writing_queue_ = false;
    worked |= write_end();
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

bool ShmSender::can_advance() const noexcept {
  return ((!queue_.empty() || end_ == End::wanted) && ring_.has_moved()) || offered_.can_advance();
}

void ShmSender::publish() {
  if (ring_.unpublished() == 0) return;
  ring_.publish();
  sent_ = written_;
  waker_.wake(wants_messages);
}

void ShmSender::finish() {
  if (end_ == End::none) end_ = End::wanted;
  write_end();
}

bool ShmSender::write_end() {
  if (end_ != End::wanted || !queue_.empty() || !ring_.has_room(sizeof(RingRecord))) return false;
  const RingRecord record{RingRecordKind::end, 0, 0, 0};
  std::memcpy(ring_.at(), &record, sizeof record);
  ring_.advance(sizeof record);
  end_ = End::written;
  publish();
  return true;
}

void ShmSender::copy_and_release(SendCompletion& owner) {
  for (Queued& message : queue_) {
    if (message.owner != &owner) continue;
    message.copy = gathered_copy(message.pieces, message.payload_bytes);
    message.pieces = {{message.copy.data(), message.payload_bytes}};
    message.owner = nullptr;
  }
  offered_.copy_and_release(owner);
}

void ShmSender::clear() noexcept {
  if (std::exchange(cleared_, true)) return;
  const std::vector<OfferedPayloads::Payload> offered = offered_.withdraw();
  dropped_bytes_ = static_cast<std::size_t>(committed_ - sent_);
  while (!queue_.empty()) {  // It is not moved: a new deque allocates.
    SendCompletion* const owner = queue_.front().owner;
    queue_.pop_front();
    if (owner != nullptr) owner->on_send_complete();
  }
  for (const OfferedPayloads::Payload& payload : offered) {
    if (payload.owner != nullptr) payload.owner->on_send_complete();
  }
}

}  // namespace hawser::transport::shm
