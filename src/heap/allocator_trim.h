#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "hawser/time.h"
#include "heap/memory_growth.h"

namespace hawser {

// Memory of malloc() and operator new. Counting takes milliseconds if there are many free pieces, and other threads may
// wait for the allocator meanwhile.
struct AllocatorBytes {
  std::size_t used = 0;
  std::size_t free = 0;  // Not in use; the system may have these pages back already.
};
AllocatorBytes allocator_bytes() noexcept;

// Resident memory of this process that no file and no other process has; 0 if the system does not say it. It takes some
// microseconds.
std::size_t private_resident_bytes() noexcept;

// Decides when the free memory of the allocator returns to the system. The allocator itself returns only what lies at
// the end of its heaps, and one small object that is in use prevents that. The allocator belongs to the process, so
// all threads share one object: of_process(). Thread-safe.
class AllocatorTrim {
 public:
  // A trim follows when the caches of threads have returned this much memory since the last trim.
  static constexpr std::size_t returned_bytes_min = std::size_t{16} << 20;
  // Less is not worth the time of a trim.
  static constexpr std::size_t free_bytes_min = std::size_t{32} << 20;
  // The least time between two trims.
  static constexpr Duration pause_min = std::chrono::seconds(10);

  static AllocatorTrim& of_process() noexcept;

  constexpr explicit AllocatorTrim(std::size_t (*resident_bytes)() noexcept = private_resident_bytes) noexcept
      : resident_bytes_(resident_bytes) {}

  // A cache has returned `bytes` to the allocator because nobody used them.
  void add(std::size_t bytes) noexcept { returned_.fetch_add(bytes, std::memory_order_relaxed); }
  // A trim follows although the caches have returned less.
  void request() noexcept { add(returned_bytes_min); }
  // Reads the resident memory now and then, and requests a trim after a burst of which no cache knows (MemoryGrowth).
  void look_for_growth(Time now) noexcept;
  // True if a trim follows, now or after a pause, or if look_for_growth() has to be called again.
  bool pending() const noexcept { return requested() || grown_.load(std::memory_order_relaxed); }
  // True if a trim is due. Then the caller calls run(), on this thread or on another one. Within the pause no other
  // caller gets true.
  bool begin(Time now) noexcept;
  // Returns the allocator's free memory to the system if it is much. This takes 10 to 50 ms for each 100 MiB. Other
  // threads that allocate from the same heap of the allocator wait meanwhile.
  void run() noexcept;
  // Number of calls of run().
  std::uint64_t runs() const noexcept { return runs_.load(std::memory_order_relaxed); }

 private:
  bool requested() const noexcept { return returned_.load(std::memory_order_relaxed) >= returned_bytes_min; }

  std::size_t (*const resident_bytes_)() noexcept;
  std::atomic<std::size_t> returned_{0};  // Bytes that caches have returned since the last run().
  std::atomic<Time> next_{Time::min()};   // No trim begins before.
  std::atomic<std::uint64_t> runs_{0};
  std::atomic<Time> next_reading_{Time::min()};  // look_for_growth() does nothing before.
  std::atomic<bool> grown_{false};               // Memory has grown; look_for_growth() decides later.
  std::mutex lock_;                              // Held while the next member is used. Nobody waits for it.
  MemoryGrowth growth_;
};

}  // namespace hawser
