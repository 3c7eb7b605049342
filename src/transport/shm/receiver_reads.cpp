// Payloads that the peer has offered to be read from its memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "transport/shm/receiver.h"

namespace hawser::transport::shm {

Result<void> ShmReceiver::begin_reading(const RingRecord& record, Bytes head, Gate& gate) {
  const std::size_t bytes = record.payload_bytes;
  if (record.where >= slots_.size() || bytes == 0)
    return protocol_violation("a payload for a direct read is empty, or its slot does not exist");
  const std::optional<ReceiveBuffer> receive_buffer = select_receive_buffer(record, head, gate);
  if (!receive_buffer) return {};
  RingReading reading;
  reading.record = record;
  reading.payload = PayloadBuffer(bytes, account_);
  reading.payload.select(*receive_buffer);
  // The peer's memory is read into the whole payload at once.
  if (!reading.payload.given() && !reading.payload.discarded() && !reading.payload.allocate()) {
    reading.payload.discard();
  }
  reading_.emplace(std::move(reading));
  return go_on_reading(gate);
}

Result<void> ShmReceiver::go_on_reading(Gate& gate) {
  TRY(const bool here, read_step());
  if (!here) return {};
  waker_.wake(wants_room);
  RingReading done = std::move(*reading_);
  reading_.reset();
  const std::size_t bytes = done.record.payload_bytes;
  Message message;
  message.head = limits_.copies ? Bytes(copied_) : Bytes(ring_.at() + sizeof(RingRecord), done.record.head_bytes);
  done.payload.complete(message);
  arrived_ += bytes;
  gate.sink->on_message(message);
  advance(sizeof(RingRecord) + aligned(done.record.head_bytes));
  return {};
}

bool ShmReceiver::reading_ready() const noexcept {
  switch (reading_->stage) {
    case RingReading::Stage::direct: return reading_->job->ended();
    case RingReading::Stage::parts:
      return slots_[reading_->record.where].state.load(std::memory_order_relaxed) != read_wanted;
    default: return true;
  }
}

// True when the payload is here, or is not needed any more.
Result<bool> ShmReceiver::read_step() {
  ReadSlot& slot = slots_[reading_->record.where];
  switch (reading_->stage) {
    case RingReading::Stage::offered: return begin_read(slot);
    case RingReading::Stage::direct: return reading_->job->ended() ? end_direct_read(slot) : Result<bool>(false);
    case RingReading::Stage::refused: return want_parts(slot);
    case RingReading::Stage::parts: break;
  }
  return take_read_part(slot);
}

Result<bool> ShmReceiver::begin_read(ReadSlot& slot) {
  if (reading_->payload.discarded()) {
    slot.state.store(read_done, std::memory_order_release);
    return true;
  }
  const std::uint32_t state = slot.state.load(std::memory_order_acquire);
  // The peer withdraws it only at its end.
  if (state == read_withdrawn) return closed_by_peer();
  TRY(const DirectRead::Source& source, source_of(slot, state));
  if (means_.peer == nullptr) return want_parts(slot);
  const PayloadBuffer& payload = reading_->payload;
  auto job = std::make_shared<DirectRead>(loop_, means_.peer, source, payload.own(),
                                          payload.given() ? payload.data() : nullptr);
  if (!job->start(*means_.helpers, means_.go_on)) return want_parts(slot);
  reading_->job = std::move(job);
  reading_->state = state;
  reading_->stage = RingReading::Stage::direct;
  reading_->progress = 0;
  stall_.start(loop_, loop_.after(read_stall_max));
  return false;
}

Result<DirectRead::Source> ShmReceiver::source_of(const ReadSlot& slot, std::uint32_t state) const {
  const std::size_t bytes = reading_->record.payload_bytes;
  DirectRead::Source source;
  if (state == read_moved) {
    source.pieces[0] = {slot.moved.load(std::memory_order_relaxed), bytes};
    source.count = 1;
    return source;
  }
  if (state != read_offered) return protocol_violation("the peer offers no payload to read");
  source.count = slot.count.load(std::memory_order_relaxed);
  if (source.count > source.pieces.size()) return protocol_violation("a payload to be read has too many pieces");
  std::size_t total = 0;
  for (std::size_t i = 0; i < source.count; ++i) {
    source.pieces[i] = {slot.pieces[i].address.load(std::memory_order_relaxed),
                        slot.pieces[i].bytes.load(std::memory_order_relaxed)};
    if (source.pieces[i].bytes > bytes - total)
      return protocol_violation("a payload to be read is longer than announced");
    total += source.pieces[i].bytes;
  }
  if (total != bytes) return protocol_violation("a payload to be read is shorter than announced");
  return source;
}

Result<bool> ShmReceiver::end_direct_read(ReadSlot& slot) {
  stall_.stop();
  const std::shared_ptr<DirectRead> job = std::exchange(reading_->job, nullptr);
  // The thread may still be about to wake the loop, which may end as soon as the payload is delivered.
  job->abandon();
  if (reading_->payload.discarded()) {
    slot.state.store(read_done, std::memory_order_release);
    return true;
  }
  const Result<void>& read = job->result();
  if (!read && read.error().scope == ErrorScope::transport) {
    means_.peer = nullptr;
    return want_parts(slot);
  }
  std::uint32_t state = reading_->state;
  if (!slot.state.compare_exchange_strong(state, read_done, std::memory_order_acq_rel)) {
    if (state == read_withdrawn) return closed_by_peer();
    // The payload may be moved once during the read.
    if (state != read_moved || ++reading_->attempts == 2)
      return protocol_violation("the peer moved a payload twice while it was read: the limit is once");
    return begin_read(slot);
  }
  if (read) return true;
  if (read.error().scope == ErrorScope::call)
    return protocol_violation("a payload to be read lies outside of the peer's memory");
  return fail(read.error());
}

// Requests that the peer copies the payload.
Result<bool> ShmReceiver::want_parts(ReadSlot& slot) {
  if (means_.peer == nullptr) own_side_.reads.store(0, std::memory_order_relaxed);
  if (reading_->stage == RingReading::Stage::refused && !reading_->payload.own().empty()) {
    // A thread that does not return may still write to the old buffer, which it keeps.
    reading_->payload.replace();
  }
  reading_->stage = RingReading::Stage::parts;
  std::uint32_t state = slot.state.load(std::memory_order_relaxed);
  while (state == read_offered || state == read_moved) {
    if (!slot.state.compare_exchange_weak(state, read_wanted, std::memory_order_acq_rel)) continue;
    waker_.wake(wants_room);
    return false;
  }
  if (state == read_withdrawn) return closed_by_peer();
  return protocol_violation("the peer offers no payload to read");
}

Result<bool> ShmReceiver::take_read_part(ReadSlot& slot) {
  std::uint32_t state = slot.state.load(std::memory_order_acquire);
  if (state == read_wanted) return false;
  if (state == read_withdrawn) return closed_by_peer();
  if (state != read_filled) return protocol_violation("the peer has not filled the next part of a payload");
  const std::size_t bytes = reading_->record.payload_bytes;
  const std::size_t part = std::min(part_bytes, bytes - reading_->copied);
  const PayloadBuffer& payload = reading_->payload;
  if (!payload.discarded()) std::memcpy(payload.data() + reading_->copied, part_, part);
  reading_->copied += part;
  const bool last = payload.discarded() || reading_->copied == bytes;
  if (!slot.state.compare_exchange_strong(state, last ? read_done : read_wanted, std::memory_order_acq_rel)) {
    if (state == read_withdrawn) return closed_by_peer();
    return protocol_violation("the peer changed the state of a part of a payload while it was copied");
  }
  if (!last) waker_.wake(wants_room);
  return last;
}

// Memory that does not answer is not read again. From now on this peer copies its payloads.
void ShmReceiver::look_for_stall() noexcept {
  if (!busy() || !mark_.is_ours()) return;
  if (reading_->job->ended()) return means_.go_on();
  const std::size_t progress = reading_->job->progress();
  if (std::exchange(reading_->progress, progress) != progress) {
    stall_.start(loop_, loop_.after(read_stall_max));
    return;
  }
  std::exchange(reading_->job, nullptr)->abandon();
  means_.peer = nullptr;
  reading_->stage = RingReading::Stage::refused;
  means_.go_on();
}

void ShmReceiver::stop() noexcept {
  stall_.stop();
  // In a child the thread does not exist, and its lock may be held.
  if (!reading_ || reading_->job == nullptr || !mark_.is_ours()) return;
  std::exchange(reading_->job, nullptr)->abandon();
  reading_->stage = RingReading::Stage::refused;
}

}  // namespace hawser::transport::shm
