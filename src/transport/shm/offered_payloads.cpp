#include "transport/shm/offered_payloads.h"

#include <algorithm>
#include <utility>

#include "transport/common/gather.h"

namespace hawser::transport::shm {

OfferedPayloads::OfferedPayloads(const SharedMemory& memory, std::size_t side)
    : slots_(memory.control().reads[side]), part_(memory.part(side)), mark_(memory.mark()) {
  for (std::size_t slot = reads_max; slot != 0; --slot) free_slots_.push_back(slot - 1);
}

std::size_t OfferedPayloads::offer(std::span<const ConstBuffer> payload, std::size_t payload_bytes,
                                   SendCompletion& owner) {
  if (free_slots_.empty()) return none;
  Payload offered{.owner = &owner, .bytes = payload_bytes};
  for (const ConstBuffer& piece : payload) {
    if (piece.size == 0) continue;
    if (offered.count == offered.pieces.size()) return none;
    offered.pieces[offered.count++] = piece;
  }
  offered.slot = free_slots_.back();
  free_slots_.pop_back();
  ReadSlot& slot = slots_[offered.slot];
  for (std::size_t i = 0; i < offered.count; ++i) {
    slot.pieces[i].address.store(reinterpret_cast<std::uintptr_t>(offered.pieces[i].data), std::memory_order_relaxed);
    slot.pieces[i].bytes.store(offered.pieces[i].size, std::memory_order_relaxed);
  }
  slot.count.store(static_cast<std::uint32_t>(offered.count), std::memory_order_relaxed);
  slot.state.store(read_offered, std::memory_order_release);
  bytes_ += payload_bytes;
  payloads_.push_back(std::move(offered));
  return payloads_.back().slot;
}

bool OfferedPayloads::advance(PeerWaker& waker) {
  bool worked = false;
  for (std::size_t i = 0; i < payloads_.size();) {
    const std::uint32_t state = slots_[payloads_[i].slot].state.load(std::memory_order_acquire);
    if (state == read_wanted) {
      fill_part(payloads_[i], waker);
      worked = true;
    }
    if (state != read_done) {
      ++i;
      continue;
    }
    const Payload done = std::move(payloads_[i]);
    if (i + 1 != payloads_.size()) payloads_[i] = std::move(payloads_.back());
    payloads_.pop_back();
    free_slots_.push_back(done.slot);
    bytes_ -= done.bytes;
    worked = true;
    if (done.owner != nullptr) done.owner->on_send_complete();
  }
  return worked;
}

// Only one payload is copied at a time, because the peer processes messages in order.
void OfferedPayloads::fill_part(Payload& payload, PeerWaker& waker) {
  const std::size_t part = std::min(part_bytes, payload.bytes - payload.done);
  if (part == 0) {
    broken_ = true;
    return;
  }
  gather_part(part_, std::span(payload.pieces.data(), payload.count), payload.done, part);
  payload.done += part;
  slots_[payload.slot].state.store(read_filled, std::memory_order_release);
  waker.wake(wants_messages);
}

bool OfferedPayloads::can_advance() const noexcept {
  return std::any_of(payloads_.begin(), payloads_.end(), [&](const Payload& payload) {
    const std::uint32_t state = slots_[payload.slot].state.load(std::memory_order_relaxed);
    return state == read_done || state == read_wanted;
  });
}

void OfferedPayloads::copy_and_release(SendCompletion& owner) {
  for (Payload& payload : payloads_) {
    if (payload.owner != &owner) continue;
    payload.owner = nullptr;
    payload.copy = gathered_copy(std::span(payload.pieces.data(), payload.count), payload.bytes);
    payload.pieces[0] = {payload.copy.data(), payload.bytes};
    payload.count = 1;
    if (!mark_.is_ours()) continue;
    ReadSlot& slot = slots_[payload.slot];
    slot.moved.store(reinterpret_cast<std::uintptr_t>(payload.copy.data()), std::memory_order_relaxed);
    // A peer that is reading now detects the change and reads again. If the peer is done or requests parts, the slot
    // does not change.
    std::uint32_t offered = read_offered;
    slot.state.compare_exchange_strong(offered, read_moved, std::memory_order_acq_rel);
  }
}

std::vector<OfferedPayloads::Payload> OfferedPayloads::withdraw() noexcept {
  for (const Payload& payload : payloads_) {
    if (!mark_.is_ours()) break;
    // Acquire: the owner may write to the payload only behind the peer's reads.
    std::atomic<std::uint32_t>& shared = slots_[payload.slot].state;
    std::uint32_t state = shared.load(std::memory_order_acquire);
    while (state != read_done && !shared.compare_exchange_weak(state, read_withdrawn)) {
    }
  }
  bytes_ = 0;
  return std::exchange(payloads_, {});
}

}  // namespace hawser::transport::shm
