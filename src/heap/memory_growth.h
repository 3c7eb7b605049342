#pragma once

#include <chrono>
#include <cstddef>

#include "hawser/time.h"

namespace hawser {

// Handlers and applications free large values, of which the caches of threads know nothing. This class decides from
// readings of resident memory when a trim of the allocator may return much of it. Not thread-safe.
class MemoryGrowth {
 public:
  // Less growth is not worth a trim.
  static constexpr std::size_t bytes_min = std::size_t{64} << 20;
  // The least time between two readings.
  static constexpr Duration reading_pause = std::chrono::seconds(10);
  // Memory that grows again within this time after a trim was in use: the next trim has a pause, which doubles each
  // time.
  static constexpr Duration again_within = std::chrono::seconds(60);
  static constexpr Duration pause_max = 32 * reading_pause;

  enum class Advice : unsigned char {
    none,
    read_again,  // Memory has grown. A later reading shows whether a trim is due.
    trim,        // Memory has grown, and no longer grows. set_base() follows.
  };

  // `bytes` are resident now.
  Advice read(Time now, std::size_t bytes) noexcept;
  // `bytes` were resident after a trim: they are in use.
  void set_base(std::size_t bytes) noexcept { base_ = bytes; }

 private:
  std::size_t base_ = 0;                      // Memory in use: the least reading since the last trim.
  std::size_t last_ = 0;                      // The last reading.
  bool grown_ = false;                        // Memory has grown since the last trim.
  Time trimmed_ = Time{} - 2 * again_within;  // The time of the last trim.
  Duration pause_{};                          // No trim follows for this long after `trimmed_`.
};

}  // namespace hawser
