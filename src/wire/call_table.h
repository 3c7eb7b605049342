#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/call_id.h"

namespace hawser::wire {

// The client's calls in flight on one connection, by call id. Each use of a slot has its own generation, so that a late
// answer does not reach a later call of the same slot. A call whose answer is not needed any more keeps its slot until
// the server has answered, so that the bound holds for the calls that the server executes.
template <class T>
class CallTable {
 public:
  static constexpr std::size_t calls_limit = 65'536;

  explicit CallTable(std::size_t calls_max) : calls_max_(calls_max < calls_limit ? calls_max : calls_limit) {}

  bool full() const noexcept { return free_ == none && slots_.size() >= calls_max_; }
  std::size_t calls_max() const noexcept { return calls_max_; }
  // Number of the calls that are open or abandoned.
  std::size_t size() const noexcept { return size_; }

  // Returns the id of a new call. The table must not be full().
  CallId open(T& call) {
    if (free_ == none) {
      slots_.push_back({nullptr, none, 1, false});
      free_ = static_cast<std::uint32_t>(slots_.size() - 1);
    }
    ++size_;
    const std::uint32_t index = free_;
    Slot& slot = slots_[index];
    free_ = slot.next_free;
    slot.call = &call;
    slot.used = true;
    return {static_cast<std::uint16_t>(index), slot.generation};
  }

  enum class State : std::uint8_t { open, abandoned, unknown };
  struct Found {
    State state;
    T* call;  // Non-null exactly while the call is open.
  };
  Found find(CallId id) const noexcept {
    if (id.slot() >= slots_.size()) return {State::unknown, nullptr};
    const Slot& slot = slots_[id.slot()];
    if (!slot.used || slot.generation != id.generation()) return {State::unknown, nullptr};
    return {slot.call != nullptr ? State::open : State::abandoned, slot.call};
  }

  // Ignores the call's answer from now on. `id` must be open.
  void abandon(CallId id) noexcept { slots_[id.slot()].call = nullptr; }
  // Frees the slot of a call that the server has answered. `id` must be open or abandoned.
  void close(CallId id) noexcept {
    Slot& slot = slots_[id.slot()];
    slot.call = nullptr;
    slot.used = false;
    slot.generation = static_cast<std::uint16_t>(slot.generation + 1);
    if (slot.generation == 0) slot.generation = 1;
    slot.next_free = free_;
    free_ = id.slot();
    --size_;
  }

  // Calls `visit` for each open call once. `visit` must not change the table.
  template <class Visit>
  void each_open(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.call != nullptr) visit(*slot.call);
    }
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Slot {
    T* call;
    std::uint32_t next_free;
    std::uint16_t generation;
    bool used;
  };

  const std::size_t calls_max_;
  std::vector<Slot> slots_;
  std::uint32_t free_ = none;
  std::size_t size_ = 0;
};

}  // namespace hawser::wire
