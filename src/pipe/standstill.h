#pragma once

#include <cstdint>
#include <utility>

namespace hawser::pipe {

// Counts checks in a row at which a number of bytes had not moved. Checks are counted instead of time, so that a pause
// of this process counts as one check. No clock.
class Standstill {
 public:
  // The next check compares with this value.
  void begin(std::uint64_t value) noexcept {
    value_ = value;
    checks_ = 0;
  }
  // Returns the number of checks up to this one that saw no movement. `counts`: false if the value may rest, so that
  // this check ends the row.
  unsigned check(std::uint64_t value, bool counts = true) noexcept {
    const bool rests = value == std::exchange(value_, value);
    checks_ = counts && rests ? checks_ + 1 : 0;
    return checks_;
  }
  // At the last check, or that of begin().
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
  unsigned checks_ = 0;
};

}  // namespace hawser::pipe
