#include "profile/sleeping_stack.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "profile/frame_rules.h"

namespace hawser {
namespace {

using Kind = FrameRules::Kind;
using Value = std::optional<std::uint64_t>;
using Registers = std::array<Value, frame_registers>;

// A frame pointer is looked for in this part of the stack.
constexpr std::uintptr_t guess_bytes_max = std::uintptr_t{128} << 10;
// No stack frame is larger.
constexpr std::uintptr_t frame_bytes_max = std::uintptr_t{64} << 20;

// ---- Expressions of DWARF (DWARF 5, section 2.5) ----

class Evaluation {
 public:
  Evaluation(OwnMemory& memory, const Registers& registers) : memory_(memory), registers_(registers) {}

  Value run(FrameRules::Expression code, Value first) {
    if (first) push(*first);
    at_ = 0;
    code_ = code;
    // Tables of compilers have short expressions without loops.
    for (int steps = 0; at_ < code_.size(); ++steps) {
      if (steps == 256 || !step(code_[at_++])) return std::nullopt;
    }
    return failed_ || depth_ == 0 ? std::nullopt : Value(stack_[depth_ - 1]);
  }

 private:
  void push(std::uint64_t value) {
    if (depth_ == stack_.size()) {
      failed_ = true;
    } else {
      stack_[depth_++] = value;
    }
  }
  std::uint64_t pop() {
    if (depth_ == 0) {
      failed_ = true;
      return 0;
    }
    return stack_[--depth_];
  }
  std::uint64_t number(std::size_t bytes, bool with_sign) {
    std::uint64_t value = 0;
    if (bytes > code_.size() - at_) {
      failed_ = true;
      return 0;
    }
    std::memcpy(&value, code_.data() + at_, bytes);
    at_ += bytes;
    if (with_sign && bytes < 8 && (value >> (8 * bytes - 1)) != 0) value |= ~std::uint64_t{0} << (8 * bytes);
    return value;
  }
  std::uint64_t leb(bool with_sign) {
    std::uint64_t value = 0;
    unsigned shift = 0;
    std::uint8_t byte = 0x80;
    while ((byte & 0x80U) != 0 && shift < 64) {
      byte = static_cast<std::uint8_t>(number(1, false));
      if (failed_) return 0;
      value |= std::uint64_t{byte & 0x7fU} << shift;
      shift += 7;
    }
    if (with_sign && shift < 64 && (byte & 0x40U) != 0) value |= ~std::uint64_t{0} << shift;
    return value;
  }

  bool step(std::uint8_t code) {
    if (code >= 0x30 && code <= 0x4f) {  // lit
      push(code - 0x30U);
    } else if (code >= 0x70 && code <= 0x8f) {  // breg
      const unsigned which = code - 0x70U;
      const std::uint64_t offset = leb(true);
      if (which >= frame_registers || !registers_[which]) return false;
      push(*registers_[which] + offset);
    } else if (code >= 0x08 && code <= 0x0f) {  // const1u to const8s
      push(number(std::size_t{1} << ((code - 0x08U) / 2), (code & 1U) != 0));
    } else {
      return arithmetic(code);
    }
    return !failed_;
  }

  bool arithmetic(std::uint8_t code) {
    std::uint64_t top = 0;
    switch (code) {
      case 0x06: {  // deref
        const Value read = memory_.word(pop());
        if (!read) return false;
        push(*read);
        return !failed_;
      }
      case 0x10: push(leb(false)); return !failed_;
      case 0x11: push(leb(true)); return !failed_;
      case 0x12:
        top = pop();
        push(top);
        push(top);
        return !failed_;
      case 0x13: pop(); return !failed_;
      case 0x23: {
        const std::uint64_t offset = leb(false);
        push(pop() + offset);
        return !failed_;
      }
      case 0x96: return true;  // nop
      default: break;
    }
    top = pop();
    const std::uint64_t below = pop();
    const auto signed_below = static_cast<std::int64_t>(below);
    const auto signed_top = static_cast<std::int64_t>(top);
    switch (code) {
      case 0x1a: push(below & top); break;
      case 0x1c: push(below - top); break;
      case 0x1e: push(below * top); break;
      case 0x21: push(below | top); break;
      case 0x22: push(below + top); break;
      case 0x24: push(top < 64 ? below << top : 0); break;
      case 0x25: push(top < 64 ? below >> top : 0); break;
      case 0x27: push(below ^ top); break;
      case 0x29: push(below == top ? 1 : 0); break;
      case 0x2a: push(signed_below >= signed_top ? 1 : 0); break;
      case 0x2b: push(signed_below > signed_top ? 1 : 0); break;
      case 0x2c: push(signed_below <= signed_top ? 1 : 0); break;
      case 0x2d: push(signed_below < signed_top ? 1 : 0); break;
      case 0x2e: push(below != top ? 1 : 0); break;
      default: return false;
    }
    return !failed_;
  }

  OwnMemory& memory_;
  const Registers& registers_;
  FrameRules::Expression code_;
  std::size_t at_ = 0;
  std::array<std::uint64_t, 32> stack_{};
  std::size_t depth_ = 0;
  bool failed_ = false;
};

// ---- Looking for a frame pointer ----

enum class Call : std::uint8_t { none, maybe, certain };

template <class T>
T number_in(std::span<const std::uint8_t> bytes, std::size_t at) noexcept {
  T value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// True if the code at `target` is a jump through a table of addresses to `function`, as linkers make it for functions
// of other files.
bool jumps_to(OwnMemory& memory, std::uintptr_t target, std::uintptr_t function) {
  std::array<std::uint8_t, 11> code{};
  if (!memory.read(target, code)) return false;
  std::size_t at = 0;
  if (number_in<std::uint32_t>(code, 0) == 0xfa1e0ff3U) at = 4;  // endbr64
  if (code[at] == 0xf2) ++at;                                    // bnd
  if (code[at] != 0xff || code[at + 1] != 0x25) return false;
  const auto offset = static_cast<std::uintptr_t>(std::int64_t{number_in<std::int32_t>(code, at + 2)});
  return memory.word(target + at + 6 + offset) == Value(function);
}

// Returns whether the instruction before `address` calls `function`.
Call call_before(OwnMemory& memory, std::uintptr_t address, std::uintptr_t function) {
  std::array<std::uint8_t, 7> code{};
  if (!memory.read(address - code.size(), code)) return Call::none;
  if (code[2] == 0xe8) {
    const auto target = address + static_cast<std::uintptr_t>(std::int64_t{number_in<std::int32_t>(code, 3)});
    if (target == function || jumps_to(memory, target, function)) return Call::certain;
  }
  if (code[1] == 0xff && code[2] == 0x15) {
    const auto offset = static_cast<std::uintptr_t>(std::int64_t{number_in<std::int32_t>(code, 3)});
    return memory.word(address + offset) == Value(function) ? Call::certain : Call::none;
  }
  // Calls through a register or memory: the bits 3 to 5 of the byte behind 0xff are 2.
  for (std::size_t at = 0; at + 1 < code.size(); ++at) {
    if (code[at] != 0xff || (code[at + 1] & 0x38U) != 0x10) continue;
    const unsigned mode = code[at + 1] >> 6;
    const std::size_t scaled = mode != 3 && (code[at + 1] & 7U) == 4 ? 1 : 0;
    const std::size_t bytes = 2 + scaled + (mode == 1 ? 1U : mode == 2 ? 4U : 0U);
    if (at + bytes == code.size()) return Call::maybe;
  }
  return Call::none;
}

// Places that may be the frame of `function`, which is called with this stack: each has a word that may be the caller's
// frame pointer, and above it the address behind a call. The most probable ones are first.
struct Guesses {
  static constexpr std::size_t kinds = 4;
  static constexpr std::size_t kept_max = 8;  // The first ones of each kind.
  std::array<std::array<std::uintptr_t, kept_max>, kinds> places{};
  std::array<std::size_t, kinds> counts{};
};

Guesses guess_frames(OwnMemory& memory, std::uintptr_t stack, std::uintptr_t function) {
  Guesses found;
  const std::uintptr_t begin = (stack + 7) / 8 * 8;
  for (std::uintptr_t at = begin; at < begin + guess_bytes_max; at += 8) {
    const Value address = memory.word(at + 8);
    if (!address) break;
    if (*address < OwnMemory::page_bytes || *address >> 47 != 0 || !is_in_function(*address - 1)) continue;
    const Call call = call_before(memory, *address, function);
    if (call == Call::none) continue;
    const Value before = memory.word(at);
    const bool frame_above = before && *before > at && *before - at < frame_bytes_max;
    const std::size_t kind = (call == Call::certain ? 0U : 2U) + (frame_above ? 0U : 1U);
    if (found.counts[kind] < Guesses::kept_max) found.places[kind][found.counts[kind]++] = at;
  }
  return found;
}

// True if the caller's frame pointer and the return address lie above the frame pointer, as every compiler does it.
bool has_usual_frame(const FrameRules& rules) noexcept {
  const FrameRules::Rule& before = rules.registers[frame_pointer_register];
  return rules.frame_expression.empty() && rules.frame_register == frame_pointer_register && rules.frame_offset == 16 &&
         before.kind == Kind::at_offset && before.number == -16;
}

// ---- The walk ----

// The registers of the caller. False if the return address cannot be found.
bool step_out(OwnMemory& memory, const FrameRules& rules, Registers& registers) {
  Value frame;
  if (!rules.frame_expression.empty()) {
    frame = Evaluation(memory, registers).run(rules.frame_expression, std::nullopt);
  } else if (rules.frame_register < frame_registers && registers[rules.frame_register]) {
    frame = *registers[rules.frame_register] + static_cast<std::uint64_t>(rules.frame_offset);
  }
  // A frame lies above its callees; that of a signal handler may lie on another stack.
  const std::uint64_t stack = *registers[stack_pointer_register];
  if (!frame || (!rules.signal && (*frame <= stack || *frame - stack > frame_bytes_max))) return false;
  Registers caller;
  for (unsigned i = 0; i < frame_registers; ++i) {
    const FrameRules::Rule& rule = rules.registers[i];
    const auto moved = *frame + static_cast<std::uint64_t>(rule.number);
    Value at;
    switch (rule.kind) {
      case Kind::same: caller[i] = i == return_address_register ? Value() : registers[i]; break;
      case Kind::undefined: break;
      case Kind::at_offset: caller[i] = memory.word(moved); break;
      case Kind::value_offset: caller[i] = moved; break;
      case Kind::other_register:
        if (static_cast<std::uint64_t>(rule.number) < frame_registers) {
          caller[i] = registers[static_cast<std::size_t>(rule.number)];
        }
        break;
      case Kind::at_expression:
        at = Evaluation(memory, registers).run(rule.expression, frame);
        if (at) caller[i] = memory.word(*at);
        break;
      case Kind::value_expression: caller[i] = Evaluation(memory, registers).run(rule.expression, frame); break;
    }
  }
  if (rules.registers[stack_pointer_register].kind == Kind::same) caller[stack_pointer_register] = frame;
  registers = caller;
  return registers[stack_pointer_register].has_value();
}

class Walk {
 public:
  Walk(OwnMemory& memory, std::span<const void* const> looked_for) : memory_(memory), looked_for_(looked_for) {}

  // Continues the stack with the frame that has these registers. `exact`: the address is that of the next instruction
  // of the function, and not one behind a call.
  SleepingStack from(SleepingStack walked, Registers registers, bool exact) {
    while (walked.depth < SleepingStack::frames_max && steps_ < steps_max) {
      ++steps_;
      const Value address = registers[return_address_register];
      if (!address || *address == 0) {
        walked.complete = address && walked.depth > 1;
        break;
      }
      walked.frames[walked.depth++] = reinterpret_cast<const void*>(*address);
      const std::optional<FrameRules> rules = frame_rules(exact ? *address : *address - 1);
      if (!rules) break;
      if (std::ranges::find(looked_for_, reinterpret_cast<const void*>(rules->function)) != looked_for_.end()) {
        walked.found = true;
      }
      if (rules->registers[return_address_register].kind == Kind::undefined) {
        walked.complete = true;
        break;
      }
      if (!registers[frame_pointer_register] && has_usual_frame(*rules)) return best_of(walked, *rules, registers);
      if (!step_out(memory_, *rules, registers)) break;
      exact = rules->signal;
    }
    return walked;
  }

 private:
  static constexpr int steps_max = 4'000;

  // The first guess whose callers lead to the first function of the thread, or else the one with the most callers.
  SleepingStack best_of(const SleepingStack& walked, const FrameRules& rules, const Registers& registers) {
    SleepingStack best = walked;
    const Guesses guesses = guess_frames(memory_, *registers[stack_pointer_register], rules.function);
    for (std::size_t kind = 0; kind < Guesses::kinds; ++kind) {
      for (std::size_t i = 0; i < guesses.counts[kind]; ++i) {
        Registers caller = registers;
        caller[frame_pointer_register] = guesses.places[kind][i];
        if (!step_out(memory_, rules, caller)) continue;
        const SleepingStack one = from(walked, caller, rules.signal);
        if (one.complete || one.depth == SleepingStack::frames_max) return one;
        if (one.depth > best.depth) best = one;
      }
    }
    return best;
  }

  OwnMemory& memory_;
  const std::span<const void* const> looked_for_;
  int steps_ = 0;
};

}  // namespace

OwnMemory::OwnMemory() : file_(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC)) {}

const OwnMemory::Page* OwnMemory::page_of(std::uintptr_t at) {
  const std::uintptr_t begin = at / page_bytes * page_bytes;
  for (const Page& page : pages_) {
    if (page.begin == begin) return &page;
  }
  if (pages_.size() == pages_max || at >> 47 != 0) return nullptr;
  Page& page = pages_.emplace_back();
  page.begin = begin;
  page.exists = ::pread(file_.get(), page.bytes.data(), page_bytes, static_cast<off_t>(begin)) ==
                static_cast<ssize_t>(page_bytes);
  return &page;
}

bool OwnMemory::read(std::uintptr_t at, std::span<std::uint8_t> to) {
  while (!to.empty()) {
    const Page* const page = page_of(at);
    if (page == nullptr || !page->exists) return false;
    const std::size_t offset = at % page_bytes;
    const std::size_t part = std::min(to.size(), page_bytes - offset);
    std::memcpy(to.data(), page->bytes.data() + offset, part);
    at += part;
    to = to.subspan(part);
  }
  return true;
}

std::optional<std::uint64_t> OwnMemory::word(std::uintptr_t at) {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  if (!read(at, bytes)) return std::nullopt;
  return number_in<std::uint64_t>(bytes, 0);
}

SleepingStack walk_sleeping(OwnMemory& memory, std::uintptr_t instruction, std::uintptr_t stack,
                            std::span<const void* const> looked_for) {
  Registers registers;
  registers[stack_pointer_register] = stack;
  registers[return_address_register] = instruction;
  return Walk(memory, looked_for).from({}, registers, true);
}

}  // namespace hawser
