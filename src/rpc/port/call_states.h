#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "table/slot_table.h"
#include "wire/call_id.h"

namespace hawser::rpc {

// State of the unanswered calls of a connection, for protocols that number calls in another way than wire::CallId:
// gives each call an id and keeps what its answer needs. T is default-constructible; its address stays the same.
template <class T>
class CallStates {
 public:
  static constexpr std::size_t calls_max = 65'536;

  std::size_t size() const noexcept { return states_.size(); }
  bool full() const noexcept { return states_.full(); }

  struct Added {
    std::uint32_t id;
    T& state;
  };
  // The table must not be full().
  Added add() {
    const auto added = states_.add();
    return {id_of(added.index, added.generation), added.value};
  }
  // Returns null if the call has been removed.
  T* find(std::uint32_t id) noexcept {
    const wire::CallId call = wire::CallId::from_number(id);
    return states_.find(call.slot(), call.generation());
  }
  void remove(std::uint32_t id) noexcept {
    if (find(id) != nullptr) states_.free(wire::CallId::from_number(id).slot());
  }
  // Calls `visit(id, state)` for each call. `visit` must not change the table.
  template <class Visit>
  void each(Visit visit) {
    states_.each([&](std::size_t slot, T& state) { visit(id_of(slot, states_.generation(slot)), state); });
  }

 private:
  static std::uint32_t id_of(std::size_t slot, std::uint16_t generation) noexcept {
    return wire::CallId(static_cast<std::uint16_t>(slot), generation).number();
  }

  table::SlotTable<T, 16, std::deque> states_{calls_max};
};

}  // namespace hawser::rpc
