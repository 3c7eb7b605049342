#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/send_slots.h"

namespace hawser::transport::rdma {

// Registered memory for the ids of finished transfers that are sent in packets of their own. It is divided into slots,
// which are used in turn. A slot is free again when the device has read it.
class ControlSlots {
 public:
  static constexpr std::size_t bytes = 4096;
  static constexpr std::size_t slot_bytes = 64;
  static constexpr std::size_t count = bytes / slot_bytes;

  // `memory` has `bytes` bytes. It returns to the pool when this is destroyed. The device must not read then.
  ControlSlots(std::shared_ptr<MemoryPool> pool, const RegisteredMemory& memory) noexcept
      : pool_(std::move(pool)), memory_(memory) {}
  ControlSlots(const ControlSlots&) = delete;
  ControlSlots& operator=(const ControlSlots&) = delete;
  ~ControlSlots() { pool_->release(memory_); }

  std::uint32_t local_key() const noexcept { return memory_.local_key; }
  // Returns the next slot; null while the device may still read it.
  std::byte* next(const SendSlots& sends) const noexcept {
    return sends.is_done(ids_[next_]) ? memory_.data + next_ * slot_bytes : nullptr;
  }
  // The slot of next() is in use until the request with this id has completed.
  void use(std::uint64_t id) noexcept {
    ids_[next_] = id;
    next_ = (next_ + 1) % count;
  }

 private:
  const std::shared_ptr<MemoryPool> pool_;
  const RegisteredMemory memory_;
  std::array<std::uint64_t, count> ids_{};  // 0, which is always done, for a slot that was not used.
  std::size_t next_ = 0;
};

}  // namespace hawser::transport::rdma
