#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace hawser {

// Numbers of the registers of x86-64 in DWARF. The last one stands for the address to which a function returns.
inline constexpr unsigned frame_registers = 17;
inline constexpr unsigned frame_pointer_register = 6;  // rbp
inline constexpr unsigned stack_pointer_register = 7;  // rsp
inline constexpr unsigned return_address_register = 16;

// How a function finds the registers of its caller, at one of its addresses.
struct FrameRules {
  enum class Kind : std::uint8_t {
    same,              // The register has not changed.
    undefined,         // The register is lost.
    at_offset,         // It lies in memory at the canonical frame address plus `number`.
    value_offset,      // It is the canonical frame address plus `number`.
    other_register,    // It is in the register `number`.
    at_expression,     // It lies in memory at the value of the expression.
    value_expression,  // It is the value of the expression.
  };
  using Expression = std::span<const std::uint8_t>;
  struct Rule {
    Kind kind = Kind::same;
    std::int64_t number = 0;
    Expression expression = {};
  };

  std::uintptr_t function = 0;  // Address of its first instruction.
  bool signal = false;          // The frame of a signal handler's return: the address is that of an instruction.
  // The canonical frame address: the stack pointer of the caller after the return. A register plus an offset, or the
  // value of an expression if that is not empty.
  std::uint64_t frame_register = stack_pointer_register;
  std::int64_t frame_offset = 0;
  Expression frame_expression = {};
  std::array<Rule, frame_registers> registers = {};
};

// The rules at `address` from the tables of the loaded files (.eh_frame); nothing if no function with a table contains
// it, or if its table has an unknown format. The files must stay loaded. Allocates nothing.
std::optional<FrameRules> frame_rules(std::uintptr_t address) noexcept;
// True if a function with a table contains `address`.
bool is_in_function(std::uintptr_t address) noexcept;

}  // namespace hawser
