#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "wire/call_id.h"

namespace hawser::rpc {

// State of the unanswered calls of a connection, for protocols that number calls in another way than wire::CallId:
// gives each call an id and keeps what its answer needs. T is default-constructible; its address stays the same.
template <class T>
class CallStates {
 public:
  static constexpr std::size_t calls_max = 65'536;

  std::size_t size() const noexcept { return size_; }
  bool full() const noexcept { return size_ >= calls_max; }

  struct Added {
    std::uint32_t id;
    T& state;
  };
  // The table must not be full().
  Added add() {
    if (free_ == none) {
      slots_.emplace_back();
      free_ = static_cast<std::uint32_t>(slots_.size() - 1);
    }
    const std::uint32_t index = free_;
    Slot& slot = slots_[index];
    free_ = slot.next_free;
    slot.used = true;
    ++size_;
    return {wire::CallId(static_cast<std::uint16_t>(index), slot.generation).number(), slot.state};
  }
  // Returns null if the call has been removed.
  T* find(std::uint32_t id) noexcept {
    Slot* const slot = slot_of(id);
    return slot == nullptr ? nullptr : &slot->state;
  }
  void remove(std::uint32_t id) noexcept {
    Slot* const slot = slot_of(id);
    if (slot == nullptr) return;
    slot->state = T();
    slot->used = false;
    slot->generation = static_cast<std::uint16_t>(slot->generation + 1);
    if (slot->generation == 0) slot->generation = 1;
    slot->next_free = free_;
    free_ = wire::CallId::from_number(id).slot();
    --size_;
  }
  // Calls `visit(id, state)` for each call. `visit` must not change the table.
  template <class Visit>
  void each(Visit visit) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.used) visit(wire::CallId(static_cast<std::uint16_t>(i), slot.generation).number(), slot.state);
    }
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Slot {
    T state = {};
    std::uint32_t next_free = none;
    std::uint16_t generation = 1;
    bool used = false;
  };
  Slot* slot_of(std::uint32_t id) noexcept {
    const wire::CallId call = wire::CallId::from_number(id);
    if (call.slot() >= slots_.size()) return nullptr;
    Slot& slot = slots_[call.slot()];
    return slot.used && slot.generation == call.generation() ? &slot : nullptr;
  }

  std::deque<Slot> slots_;
  std::uint32_t free_ = none;
  std::size_t size_ = 0;
};

}  // namespace hawser::rpc
