#pragma once

#include <cstddef>

#include "hawser/time.h"
#include "heap/allocator_trim.h"

namespace hawser {

class BlockPool;
class FramePool;
struct SecretCache;

// Bytes that the caches of threads keep for their next use.
struct CachedMemory {
  std::size_t block_bytes = 0;   // Memory of messages: what was received, and what waits to be sent (BlockPool).
  std::size_t frame_bytes = 0;   // Frames of coroutines (FramePool).
  std::size_t secret_bytes = 0;  // Memory of TLS and other secrets (SecretMemory).

  CachedMemory& operator+=(const CachedMemory& other) noexcept {
    block_bytes += other.block_bytes;
    frame_bytes += other.frame_bytes;
    secret_bytes += other.secret_bytes;
    return *this;
  }
};

// The bounds of one thread.
CachedMemory cached_memory_max() noexcept;

// The caches of a thread.
class ThreadCaches {
 public:
  // The caches of no thread: they keep nothing.
  ThreadCaches() noexcept = default;
  static ThreadCaches local() noexcept;

  // Any thread, while the thread of the caches exists.
  CachedMemory read() const noexcept;
  // True if shrinking returns something, now or in a later period.
  bool shrinkable() const noexcept;

 private:
  const BlockPool* blocks_ = nullptr;
  const FramePool* frames_ = nullptr;
  const SecretCache* secrets_ = nullptr;
};

// Memory that a thread's caches have not used for this period is returned to the allocator.
inline constexpr Duration idle_memory_period = std::chrono::seconds(10);

// Returns memory that the caches of a thread do not use. For a loop or a thread that works now and then.
class IdleMemory {
 public:
  enum class Released : unsigned char {
    part,          // More follows soon.
    all,           // Nothing else until the next period ends.
    all_trim_due,  // As `all`. AllocatorTrim::run() is due: the caller runs it on a thread that has the time.
  };

  // Reports the memory that it returns to `trim`. Without one (null) the memory stays with the allocator.
  explicit IdleMemory(Time now, Duration period = idle_memory_period,
                      AllocatorTrim* trim = &AllocatorTrim::of_process()) noexcept
      : period_(period), trim_(trim), due_(now + period) {}

  // The time of the next release.
  Time due() const noexcept { return due_; }
  // Returns memory that the caches of the calling thread have not used in the last period. It takes less than a
  // millisecond, so much memory needs several calls.
  Released release(Time now) noexcept;
  // True if a release is needed, because `caches` of the calling thread keep memory or because a trim follows.
  bool needed(const ThreadCaches& caches) const noexcept {
    return caches.shrinkable() || (trim_ != nullptr && trim_->pending());
  }

 private:
  const Duration period_;
  AllocatorTrim* const trim_;
  Time due_;
};

// Returns all memory of the calling thread's caches to the allocator, and requests a trim.
void release_all_idle_memory() noexcept;

}  // namespace hawser
