#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "table/slot_table.h"
#include "wire/call_id.h"

namespace hawser::wire {

// The client's calls in flight on one connection, by call id. Each use of a slot has its own generation, so that a late
// answer does not reach a later call of the same slot. A call whose answer is not needed any more keeps its slot until
// the server has answered, so that the bound holds for the calls that the server executes.
template <class T>
class CallTable {
 public:
  static constexpr std::size_t calls_limit = 65'536;

  explicit CallTable(std::size_t calls_max) : calls_(std::min(calls_max, calls_limit)) {}

  bool full() const noexcept { return calls_.full(); }
  std::size_t calls_max() const noexcept { return calls_.slots_max(); }
  // Number of the calls that are open or abandoned.
  std::size_t size() const noexcept { return calls_.size(); }

  // Returns the id of a new call. The table must not be full().
  CallId open(T& call) {
    const auto added = calls_.add(&call);
    return {static_cast<std::uint16_t>(added.index), added.generation};
  }

  enum class State : std::uint8_t { open, abandoned, unknown };
  struct Found {
    State state;
    T* call;  // Non-null exactly while the call is open.
  };
  Found find(CallId id) const noexcept {
    T* const* const found = calls_.find(id.slot(), id.generation());
    if (found == nullptr) return {State::unknown, nullptr};
    return {*found != nullptr ? State::open : State::abandoned, *found};
  }

  // Ignores the call's answer from now on. `id` must be open.
  void abandon(CallId id) noexcept { calls_[id.slot()] = nullptr; }
  // Frees the slot of a call that the server has answered. `id` must be open or abandoned.
  void close(CallId id) noexcept { calls_.free(id.slot()); }

  // Calls `visit` for each open call once. `visit` must not change the table.
  template <class Visit>
  void each_open(Visit visit) const {
    calls_.each([&](std::size_t, T* call) {
      if (call != nullptr) visit(*call);
    });
  }

 private:
  table::SlotTable<T*, 16> calls_;  // A null pointer in use is an abandoned call.
};

}  // namespace hawser::wire
