#pragma once

#include <memory>

#include "hawser/loop.h"

namespace hawser {

namespace exec {
class EpollPoller;
}

// A Loop that another event loop drives on its own thread, such as that of Asio, libuv, Qt or GLib. The other event
// loop calls poll_once() once at the start, and then whenever descriptor() is readable or the time that the last
// poll_once() returned has passed. docs/embedding.md has the code for some event loops.
//
//   EmbeddedLoop hawser;
//   for (;;) {
//     const Duration next = hawser.poll_once();
//     wait_until_readable(hawser.descriptor(), next);
//   }
//
// One thread at a time uses an EmbeddedLoop and what belongs to its loop(). Work begins by Loop::post(), which any
// thread may call: Loop::now() is the present time within poll_once() only.
class EmbeddedLoop {
 public:
  // `options.wait` and `options.poller` have no effect: the loop never spins, and uses epoll. Throws std::system_error
  // if the process is out of descriptors.
  explicit EmbeddedLoop(LoopOptions options = {});
  EmbeddedLoop(const EmbeddedLoop&) = delete;
  EmbeddedLoop& operator=(const EmbeddedLoop&) = delete;
  ~EmbeddedLoop() = default;

  // Do not call run() of it.
  Loop& loop() noexcept { return loop_; }

  // Readable (level-triggered) while the loop may have work. Open and the same until this object is destroyed. Do not
  // read from it and do not close it.
  int descriptor() const noexcept { return descriptor_; }

  // Executes the work that is ready, and never waits. Returns the time after which it must be called again although
  // the descriptor is not readable: zero if work is left, `forever` if nothing is due. It ends after ticks_max
  // ticks, so that loops share the thread. A task of this loop must not call it: that ends the process with a message.
  Duration poll_once();
  static constexpr unsigned ticks_max = 16;

 private:
  EmbeddedLoop(std::unique_ptr<exec::EpollPoller> poller, LoopOptions options);

  const int descriptor_;
  Loop loop_;
};

}  // namespace hawser
