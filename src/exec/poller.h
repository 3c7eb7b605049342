#pragma once

#include <cstddef>
#include <string_view>

#include "hawser/time.h"

namespace hawser {
class Loop;
}

namespace hawser::exec {

// What a descriptor is ready for.
struct Readiness {
  bool readable = false;
  bool writable = false;
  bool hangup = false;  // The peer closed, or an error is pending: reading tells.
  bool broken = false;  // An error is pending, such as the peer's reset: what is sent is lost.
};

// Is told when a descriptor becomes ready. Edge-triggered: read or write until the kernel has no more.
class Watcher {
 public:
  virtual void on_ready(Readiness readiness) = 0;

 protected:
  ~Watcher() = default;
};

class IoUring;

// Where a loop learns of the outside and of time. Loop's thread only, but for wake().
class Poller {
 public:
  virtual ~Poller() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual Time now() const noexcept = 0;

  // Delivers what is ready. Waits at most `timeout`: zero only looks, `forever` waits for an event or wake(). Sets
  // `now` when the waiting is over and before anything is delivered, since what is told then computes deadlines from
  // it. Gives the number of events delivered; a wake() alone counts as none.
  virtual std::size_t wait(Duration timeout, Time& now) = 0;

  // Ends the wait() at hand, or the next one. Any thread.
  virtual void wake() noexcept = 0;

  // Watches `fd` for reading and writing until unwatch(), after which `watcher` is not called any more. Throws
  // std::system_error if the system takes no more descriptors, std::bad_alloc without memory; then nothing is watched.
  virtual void watch(int fd, Watcher& watcher) = 0;
  virtual void unwatch(int fd, Watcher& watcher) noexcept = 0;

  // Whether time passes by itself, so that spinning makes sense. Under simulation only waiting moves the clock.
  virtual bool real_time() const noexcept { return true; }

  // The ring, if this poller has one: completions for those who can use them.
  virtual IoUring* io_uring() noexcept { return nullptr; }
};

// Something that is polled while the loop spins: a completion queue, a shared-memory ring, a busy socket.
class Source {
 public:
  // Does what there is to do; true if there was something.
  virtual bool poll() = 0;
  // Before the loop sleeps: makes sure that new work wakes the poller. False if work has come meanwhile.
  virtual bool arm() { return true; }

 protected:
  ~Source() = default;

 private:
  friend class hawser::Loop;
  // The loop's list: to be added takes no memory.
  Source* next_ = nullptr;
  Source* previous_ = nullptr;
};

// Runs at the end of a tick that asked for it by Loop::at_tick_end().
class TickEnd {
 public:
  virtual void on_tick_end() = 0;

 protected:
  ~TickEnd() = default;
  // Asked for already: another Loop::at_tick_end() changes nothing.
  bool queued() const noexcept { return queued_; }

 private:
  friend class hawser::Loop;
  // The loop's list: to ask for the end of a tick takes no memory.
  TickEnd* next_ = nullptr;
  TickEnd* previous_ = nullptr;
  bool queued_ = false;
};

}  // namespace hawser::exec
