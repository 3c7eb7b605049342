#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hawser::rpc {

class PortSession;

// The sessions of one loop by the number of their slot, so that they can be visited in parts, with other work in
// between. A slot is used again, with another serial(). Loop's thread only.
class SessionSlots {
 public:
  std::size_t add(PortSession& session) {
    if (free_.empty()) {
      slots_.reserve(slots_.size() + 1);
      free_.reserve(slots_.capacity());  // remove() must not need memory.
      slots_.push_back({&session, next_serial_++});
      return slots_.size() - 1;
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = {&session, next_serial_++};
    return slot;
  }
  void remove(std::size_t slot) noexcept {
    slots_[slot].session = nullptr;
    free_.push_back(slot);
  }
  // One more than the greatest number.
  std::size_t size() const noexcept { return slots_.size(); }
  // Null if the slot is free.
  PortSession* at(std::size_t slot) const noexcept { return slot < slots_.size() ? slots_[slot].session : nullptr; }
  std::uint64_t serial(std::size_t slot) const noexcept { return slots_[slot].serial; }

 private:
  struct Slot {
    PortSession* session;
    std::uint64_t serial;
  };
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
  std::uint64_t next_serial_ = 1;
};

}  // namespace hawser::rpc
