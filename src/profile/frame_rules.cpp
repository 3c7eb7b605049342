#include "profile/frame_rules.h"

#include <cstring>
#include <string_view>

// The table entry of the function that contains an address. Every unwinder of the C++ run time has this function.
struct dwarf_eh_bases {
  void* text;
  void* data;
  void* function;
};
extern "C" const void* _Unwind_Find_FDE(void* address, dwarf_eh_bases* bases);

namespace hawser {
namespace {

using Kind = FrameRules::Kind;

// Reads the numbers of a table. Reading behind the end gives 0 and marks the reader as failed.
class RuleReader {
 public:
  RuleReader(const std::uint8_t* at, const std::uint8_t* end) : at_(at), end_(end) {}

  bool more() const noexcept { return !failed_ && at_ < end_; }
  bool failed() const noexcept { return failed_; }
  const std::uint8_t* at() const noexcept { return at_; }

  template <class T>
  T fixed() noexcept {
    T value = 0;
    if (const std::uint8_t* const from = take(sizeof value)) std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint64_t uleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80U) == 0) return value;
    }
  }
  std::int64_t sleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0;;) {
      const auto byte = fixed<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
      shift += 7;
      if ((byte & 0x80U) != 0) continue;
      if (shift < 64 && (byte & 0x40U) != 0) value |= ~std::uint64_t{0} << shift;
      return static_cast<std::int64_t>(value);
    }
  }
  FrameRules::Expression block() noexcept {
    const std::uint64_t bytes = uleb();
    const std::uint8_t* const from = take(bytes);
    return from == nullptr ? FrameRules::Expression() : FrameRules::Expression(from, bytes);
  }
  void skip(std::uint64_t bytes) noexcept { static_cast<void>(take(bytes)); }

 private:
  const std::uint8_t* take(std::uint64_t bytes) noexcept {
    if (failed_ || bytes > static_cast<std::uint64_t>(end_ - at_)) {
      failed_ = true;
      return nullptr;
    }
    const std::uint8_t* const from = at_;
    at_ += bytes;
    return from;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

// Bytes of a pointer in this encoding (DW_EH_PE_*); 0 if that is not known.
std::size_t pointer_bytes(std::uint8_t encoding) noexcept {
  switch (encoding & 0x0fU) {
    case 0x00:
    case 0x04:
    case 0x0c: return 8;
    case 0x02:
    case 0x0a: return 2;
    case 0x03:
    case 0x0b: return 4;
    default: return 0;
  }
}

// The end of an entry and its content behind the length. An entry of 4 GiB or more is not supported.
RuleReader entry_at(const std::uint8_t* at) noexcept {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  if (bytes == 0xffff'ffffU) bytes = 0;
  return {at + sizeof bytes, at + sizeof bytes + bytes};
}

// The part that functions share (CIE).
struct Common {
  std::uint64_t code_factor = 1;
  std::int64_t data_factor = 1;
  std::uint8_t pointer_encoding = 0;
  bool sized = false;  // The function's entry has augmentation data with a length.
  bool signal = false;
  RuleReader instructions{nullptr, nullptr};
};

std::optional<Common> common_at(const std::uint8_t* at) noexcept {
  Common common;
  RuleReader in = entry_at(at);
  if (in.fixed<std::uint32_t>() != 0) return std::nullopt;
  const auto version = in.fixed<std::uint8_t>();
  if (version != 1 && version != 3) return std::nullopt;
  std::array<char, 8> letters{};
  std::size_t count = 0;
  for (char letter = in.fixed<char>(); letter != 0; letter = in.fixed<char>()) {
    if (count == letters.size()) return std::nullopt;
    letters[count++] = letter;
  }
  const std::string_view augmentation(letters.data(), count);
  common.code_factor = in.uleb();
  common.data_factor = in.sleb();
  const std::uint64_t returns_to = version == 1 ? in.fixed<std::uint8_t>() : in.uleb();
  if (in.failed() || returns_to != return_address_register) return std::nullopt;
  if (!augmentation.empty()) {
    if (augmentation.front() != 'z') return std::nullopt;
    common.sized = true;
    const FrameRules::Expression block = in.block();
    RuleReader data(block.data(), block.data() + block.size());
    for (const char letter : augmentation.substr(1)) {
      if (letter == 'R') {
        common.pointer_encoding = data.fixed<std::uint8_t>();
      } else if (letter == 'L') {
        data.skip(1);
      } else if (letter == 'P') {
        const auto encoding = data.fixed<std::uint8_t>();
        if (pointer_bytes(encoding) == 0) return std::nullopt;
        data.skip(pointer_bytes(encoding));
      } else if (letter == 'S') {
        common.signal = true;
      } else {
        return std::nullopt;
      }
    }
    if (data.failed()) return std::nullopt;
  }
  if (in.failed()) return std::nullopt;
  common.instructions = in;
  return common;
}

// Executes instructions of a table (DWARF 5, section 6.4.2).
class Machine {
 public:
  Machine(const Common& common, std::uintptr_t function, std::uintptr_t address)
      : common_(common), location_(function), address_(address) {
    rules_.function = function;
    rules_.signal = common.signal;
  }

  // Executes until the instructions apply to addresses behind `address_`. False for an unknown instruction.
  bool execute(RuleReader in) noexcept {
    while (in.more()) {
      const auto code = in.fixed<std::uint8_t>();
      const unsigned low = code & 0x3fU;
      switch (code & 0xc0U) {
        case 0x40: advance(low); break;
        case 0x80: set(low, Kind::at_offset, scaled(in.uleb())); break;
        case 0xc0: restore(low); break;
        default:
          if (!extended(code, in)) return false;
      }
      if (location_ > address_) return true;
    }
    return !in.failed();
  }
  void keep_initial() noexcept { initial_ = rules_; }
  const FrameRules& rules() const noexcept { return rules_; }

 private:
  static constexpr std::size_t states_max = 8;

  std::int64_t scaled(std::uint64_t value) const noexcept {
    return static_cast<std::int64_t>(value) * common_.data_factor;
  }
  void advance(std::uint64_t steps) noexcept { location_ += steps * common_.code_factor; }
  void set(std::uint64_t number, Kind kind, std::int64_t value, FrameRules::Expression expression = {}) noexcept {
    if (number < frame_registers) rules_.registers[number] = {kind, value, expression};
  }
  void restore(std::uint64_t number) noexcept {
    if (number < frame_registers) rules_.registers[number] = initial_.registers[number];
  }
  void frame(std::uint64_t number, std::int64_t offset) noexcept {
    rules_.frame_register = number;
    rules_.frame_offset = offset;
    rules_.frame_expression = {};
  }

  bool extended(std::uint8_t code, RuleReader& in) noexcept {
    // Function arguments have no order, so each operand that is followed by another one is read first.
    std::uint64_t number = 0;
    switch (code) {
      case 0x00: return true;
      case 0x02: advance(in.fixed<std::uint8_t>()); return true;
      case 0x03: advance(in.fixed<std::uint16_t>()); return true;
      case 0x04: advance(in.fixed<std::uint32_t>()); return true;
      case 0x05:
        number = in.uleb();
        set(number, Kind::at_offset, scaled(in.uleb()));
        return true;
      case 0x06: restore(in.uleb()); return true;
      case 0x07: set(in.uleb(), Kind::undefined, 0); return true;
      case 0x08: set(in.uleb(), Kind::same, 0); return true;
      case 0x09:
        number = in.uleb();
        set(number, Kind::other_register, static_cast<std::int64_t>(in.uleb()));
        return true;
      case 0x0a:
        if (states_ == states_max) return false;
        saved_[states_++] = rules_;
        return true;
      case 0x0b:
        if (states_ == 0) return false;
        rules_ = saved_[--states_];
        return true;
      case 0x0c:
        number = in.uleb();
        frame(number, static_cast<std::int64_t>(in.uleb()));
        return true;
      case 0x0d: frame(in.uleb(), rules_.frame_offset); return true;
      case 0x0e: frame(rules_.frame_register, static_cast<std::int64_t>(in.uleb())); return true;
      case 0x0f: rules_.frame_expression = in.block(); return true;
      case 0x10:
        number = in.uleb();
        set(number, Kind::at_expression, 0, in.block());
        return true;
      case 0x11:
        number = in.uleb();
        set(number, Kind::at_offset, in.sleb() * common_.data_factor);
        return true;
      case 0x12:
        number = in.uleb();
        frame(number, in.sleb() * common_.data_factor);
        return true;
      case 0x13: frame(rules_.frame_register, in.sleb() * common_.data_factor); return true;
      case 0x14:
        number = in.uleb();
        set(number, Kind::value_offset, scaled(in.uleb()));
        return true;
      case 0x15:
        number = in.uleb();
        set(number, Kind::value_offset, in.sleb() * common_.data_factor);
        return true;
      case 0x16:
        number = in.uleb();
        set(number, Kind::value_expression, 0, in.block());
        return true;
      case 0x2e: static_cast<void>(in.uleb()); return true;  // Bytes of arguments on the stack.
      default: return false;
    }
  }

  const Common& common_;
  std::uintptr_t location_;
  const std::uintptr_t address_;
  FrameRules rules_;
  FrameRules initial_;
  std::array<FrameRules, states_max> saved_;
  std::size_t states_ = 0;
};

}  // namespace

std::optional<FrameRules> frame_rules(std::uintptr_t address) noexcept {
  dwarf_eh_bases bases{};
  const auto* const entry =
      static_cast<const std::uint8_t*>(_Unwind_Find_FDE(reinterpret_cast<void*>(address), &bases));
  if (entry == nullptr) return std::nullopt;
  RuleReader in = entry_at(entry);
  const std::uint8_t* const field = in.at();
  const auto back = in.fixed<std::int32_t>();
  const std::optional<Common> common = common_at(field - back);
  if (!common) return std::nullopt;
  const std::size_t bytes = pointer_bytes(common->pointer_encoding);
  if (bytes == 0) return std::nullopt;
  in.skip(2 * bytes);
  if (common->sized) static_cast<void>(in.block());
  if (in.failed()) return std::nullopt;
  Machine machine(*common, reinterpret_cast<std::uintptr_t>(bases.function), address);
  if (!machine.execute(common->instructions)) return std::nullopt;
  machine.keep_initial();
  if (!machine.execute(in)) return std::nullopt;
  return machine.rules();
}

bool is_in_function(std::uintptr_t address) noexcept {
  dwarf_eh_bases bases{};
  return _Unwind_Find_FDE(reinterpret_cast<void*>(address), &bases) != nullptr;
}

}  // namespace hawser
