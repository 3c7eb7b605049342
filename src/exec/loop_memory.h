#pragma once

#include <algorithm>
#include <mutex>

#include "heap/idle_memory.h"

namespace hawser::exec {

// The caches of a loop's thread. The loop returns memory that they have not used for a while. Loop's thread only,
// except for read().
class LoopMemory {
 public:
  // In simulated time (`real_time` is false), which passes fast, the allocator is not trimmed.
  LoopMemory(Time now, bool real_time) noexcept
      : idle_(now, idle_memory_period, real_time ? &AllocatorTrim::of_process() : nullptr) {}

  // The calling thread runs the loop, until end().
  void begin() noexcept { set(ThreadCaches::local()); }
  void end() noexcept { set({}); }

  // True if release() is due.
  bool due(Time now) const noexcept { return now >= idle_.due(); }
  // As IdleMemory::release().
  IdleMemory::Released release(Time now) noexcept { return idle_.release(now); }
  // The time until which the loop may sleep, at most `limit`. While the caches keep anything, or `others` of the loop
  // do, it wakes to return it.
  Time wake_time(Time limit, bool others) const noexcept {
    return idle_.due() < limit && (others || idle_.needed(caches_)) ? idle_.due() : limit;
  }

  // Any thread. Nothing while no thread runs the loop.
  CachedMemory read() const {
    const std::lock_guard guard(lock_);
    return caches_.read();
  }

 private:
  // The thread may end when read() has no reference to its caches any more.
  void set(ThreadCaches caches) noexcept {
    const std::lock_guard guard(lock_);
    caches_ = caches;
  }

  IdleMemory idle_;
  mutable std::mutex lock_;  // Held while another thread reads the next member, and while it is changed.
  ThreadCaches caches_;
};

}  // namespace hawser::exec
