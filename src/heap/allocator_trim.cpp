#include "heap/allocator_trim.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "base/descriptor.h"

namespace hawser {

AllocatorBytes allocator_bytes() noexcept {
  const struct mallinfo2 heap = mallinfo2();
  return {.used = heap.uordblks + heap.hblkhd, .free = heap.fordblks};
}

// The file has numbers of pages: of addresses, of resident memory, and of that what is shared.
std::size_t private_resident_bytes() noexcept {
  const Descriptor file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  std::array<char, 128> text{};
  if (!file.valid() || ::read(file.get(), text.data(), text.size()) <= 0) return 0;
  std::array<std::size_t, 3> pages{};
  const char* at = text.data();
  for (std::size_t& number : pages) {
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), number);
    if (error != std::errc{} || end == text.data() + text.size()) return 0;
    at = end + 1;
  }
  const auto [total, resident, shared] = pages;
  return resident < shared ? 0 : (resident - shared) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

AllocatorTrim& AllocatorTrim::of_process() noexcept {
  static constinit AllocatorTrim trim;
  return trim;
}

bool AllocatorTrim::begin(Time now) noexcept {
  if (!requested()) return false;
  Time next = next_.load(std::memory_order_relaxed);
  return now >= next && next_.compare_exchange_strong(next, now + pause_min, std::memory_order_relaxed);
}

void AllocatorTrim::look_for_growth(Time now) noexcept {
  Time next = next_reading_.load(std::memory_order_relaxed);
  if (now < next || !next_reading_.compare_exchange_strong(next, now + MemoryGrowth::reading_pause)) return;
  const std::size_t bytes = resident_bytes_();
  const std::unique_lock guard(lock_, std::try_to_lock);
  if (bytes == 0 || !guard) return;
  const MemoryGrowth::Advice advice = growth_.read(now, bytes);
  grown_.store(advice == MemoryGrowth::Advice::read_again, std::memory_order_relaxed);
  if (advice == MemoryGrowth::Advice::trim) request();
}

void AllocatorTrim::run() noexcept {
  returned_.store(0, std::memory_order_relaxed);
  if (allocator_bytes().free >= free_bytes_min) malloc_trim(0);
  if (const std::unique_lock guard(lock_, std::try_to_lock); guard) growth_.set_base(resident_bytes_());
  runs_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hawser
