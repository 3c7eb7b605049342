#include "heap/memory_growth.h"

#include <algorithm>
#include <utility>

namespace hawser {

MemoryGrowth::Advice MemoryGrowth::read(Time now, std::size_t bytes) noexcept {
  const std::size_t before = std::exchange(last_, bytes);
  base_ = std::min(base_, bytes);
  if (bytes - base_ < bytes_min) {
    if (now - trimmed_ > again_within) grown_ = false;  // It has come back by itself.
    return Advice::none;
  }
  if (!std::exchange(grown_, true)) {
    pause_ = now - trimmed_ > again_within ? Duration::zero() : std::clamp(2 * pause_, 2 * reading_pause, pause_max);
  }
  if (bytes > before + bytes_min / 8 || now - trimmed_ < pause_) return Advice::read_again;
  trimmed_ = now;
  grown_ = false;
  return Advice::trim;
}

}  // namespace hawser
