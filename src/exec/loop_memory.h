#pragma once

#include <algorithm>
#include <mutex>

#include "base/idle_memory.h"

namespace hawser::exec {

// The caches of a loop's thread. The loop returns memory that they have not used for a while. Loop's thread only,
// except for read().
class LoopMemory {
 public:
  explicit LoopMemory(Time now) noexcept : idle_(now) {}

  // The calling thread runs the loop, until end().
  void begin() noexcept { set(ThreadCaches::local()); }
  void end() noexcept { set({}); }

  void on_tick(Time now) noexcept {
    if (now >= idle_.due()) [[unlikely]]
      idle_.release(now);
  }
  // The time until which the loop may sleep, at most `limit`. While the caches keep anything, it wakes to return it.
  Time wake_time(Time limit) const noexcept {
    return idle_.due() < limit && caches_.shrinkable() ? idle_.due() : limit;
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
