#pragma once

#include <atomic>
#include <cstdint>

namespace hawser {

// Counts lines of a log that several loops write, so that there are at most so many in a second. Thread-safe.
class LinesPerSecond {
 public:
  // True if another line may be written at `second` of the steady clock. Each loop reads the clock at the beginning of
  // its tick, so that a loop may come with an earlier second than another one before it. Such a line is one of the
  // later second.
  bool take(std::int64_t second, std::uint32_t lines_max) noexcept {
    std::uint64_t state = state_.load(std::memory_order_relaxed);
    for (;;) {
      const auto latest = static_cast<std::uint32_t>(state >> 32);
      const auto given = static_cast<std::uint32_t>(second);
      const bool later = static_cast<std::int32_t>(given - latest) > 0;
      const std::uint32_t lines = later ? 0 : static_cast<std::uint32_t>(state);
      if (lines >= lines_max) return false;
      const std::uint64_t next = std::uint64_t{later ? given : latest} << 32 | (lines + 1);
      if (state_.compare_exchange_weak(state, next, std::memory_order_relaxed)) return true;
    }
  }

 private:
  // The latest second modulo 2^32 in the upper half, and its lines.
  std::atomic<std::uint64_t> state_{0};
};

}  // namespace hawser
