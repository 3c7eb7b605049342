#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hawser/time.h"

namespace hawser {
class Loop;
}

namespace hawser::exec {

// The state of a descriptor.
struct Readiness {
  bool readable = false;
  bool writable = false;
  bool hangup = false;  // The peer closed, or an error is pending: reading shows which.
  bool broken = false;  // An error is pending, such as the peer's reset: sent bytes are lost.
};

// Is notified when a descriptor becomes ready. Edge-triggered: read or write until the kernel returns EAGAIN.
class Watcher {
 public:
  virtual void on_ready(Readiness readiness) = 0;

 protected:
  ~Watcher() = default;
};

class IoUring;

// Waits for descriptors and time on behalf of a loop. Loop's thread only, except for wake().
class Poller {
 public:
  virtual ~Poller() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual Time now() const noexcept = 0;

  // Delivers the events of ready descriptors. Waits at most `timeout`: zero does not wait, `forever` waits for an event
  // or wake(). Sets `now` after waiting and before it delivers events, since watchers compute deadlines from it.
  // Returns the number of delivered events; a wake() alone counts as none.
  virtual std::size_t wait(Duration timeout, Time& now) = 0;

  // Ends the current wait(), or the next one if none is running. Any thread.
  virtual void wake() noexcept = 0;

  // Watches `fd` for reading and writing until unwatch(), after which `watcher` is not called any more. Throws
  // std::system_error if the system takes no more descriptors, std::bad_alloc without memory; then nothing is watched.
  virtual void watch(int fd, Watcher& watcher) = 0;
  virtual void unwatch(int fd, Watcher& watcher) noexcept = 0;

  // True if time passes by itself, so that spinning is useful. In a simulation only waiting moves the clock.
  virtual bool real_time() const noexcept { return true; }
  // The loop's random numbers for jitter follow from it. Without it, they follow from the kernel's generator.
  virtual std::optional<std::uint64_t> seed() const noexcept { return std::nullopt; }

  // The io_uring ring of this poller, for users of completions; null if it has none.
  virtual IoUring* io_uring() noexcept { return nullptr; }
};

// Something that is polled while the loop spins: a completion queue, a shared-memory ring, a busy socket.
class Source {
 public:
  // Executes the work that is available. True if there was any.
  virtual bool poll() = 0;
  // Called before the loop sleeps: makes sure that new work wakes the poller. False if work has arrived meanwhile.
  virtual bool arm() { return true; }

 protected:
  ~Source() = default;

 private:
  friend class hawser::Loop;
  // The loop's list: adding a source allocates nothing.
  Source* next_ = nullptr;
  Source* previous_ = nullptr;
};

// Runs at the end of a tick that asked for it by Loop::at_tick_end().
class TickEnd {
 public:
  virtual void on_tick_end() = 0;

 protected:
  ~TickEnd() = default;
  // True while this is queued: another Loop::at_tick_end() has no effect.
  bool queued() const noexcept { return queued_; }

 private:
  friend class hawser::Loop;
  // The loop's list: queueing allocates nothing.
  TickEnd* next_ = nullptr;
  TickEnd* previous_ = nullptr;
  bool queued_ = false;
};

}  // namespace hawser::exec
