#include "base/allocator_trim.h"

#include <malloc.h>

namespace hawser {

AllocatorBytes allocator_bytes() noexcept {
  const struct mallinfo2 heap = mallinfo2();
  return {.used = heap.uordblks + heap.hblkhd, .free = heap.fordblks};
}

AllocatorTrim& AllocatorTrim::of_process() noexcept {
  static constinit AllocatorTrim trim;
  return trim;
}

bool AllocatorTrim::begin(Time now) noexcept {
  if (!pending()) return false;
  Time next = next_.load(std::memory_order_relaxed);
  return now >= next && next_.compare_exchange_strong(next, now + pause_min, std::memory_order_relaxed);
}

void AllocatorTrim::run() noexcept {
  returned_.store(0, std::memory_order_relaxed);
  if (allocator_bytes().free >= free_bytes_min) malloc_trim(0);
  runs_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hawser
