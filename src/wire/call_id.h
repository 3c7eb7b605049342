#pragma once

#include <cstdint>
#include <string>

namespace hawser::wire {

// Identifies a call on its connection: the slot in the client's call table, and the generation of that slot, which is
// never 0 in the id of a call. docs/wire-format.md, "Ids".
class CallId {
 public:
  // The number 0 on the wire: a frame that belongs to no call.
  constexpr CallId() noexcept = default;
  constexpr CallId(std::uint16_t slot, std::uint16_t generation) noexcept
      : number_(std::uint32_t{generation} << slot_bits | slot) {}
  // Makes an id from the number on the wire. Any number is an id.
  static constexpr CallId from_number(std::uint32_t number) noexcept {
    CallId id;
    id.number_ = number;
    return id;
  }

  constexpr std::uint32_t number() const noexcept { return number_; }
  constexpr std::uint16_t slot() const noexcept { return static_cast<std::uint16_t>(number_); }
  constexpr std::uint16_t generation() const noexcept { return static_cast<std::uint16_t>(number_ >> slot_bits); }

  friend constexpr bool operator==(CallId, CallId) noexcept = default;

 private:
  static constexpr int slot_bits = 16;
  std::uint32_t number_ = 0;
};

// Returns the id as error texts name it.
inline std::string to_string(CallId id) {
  return "slot " + std::to_string(id.slot()) + ", generation " + std::to_string(id.generation());
}

}  // namespace hawser::wire
