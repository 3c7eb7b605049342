#pragma once

namespace hawser {
class Loop;
}

namespace hawser::exec {

// True if a loop lives at that address. A coroutine may be destroyed after its loop, and must not use more than the
// loop's address then. Any thread. Takes no lock, so that a child by fork() may use it.
bool is_live_loop(const Loop& loop) noexcept;

// True once this thread ends, also by exit(), and after exit() has begun to destroy static objects that were made
// before the first call of watch_exit(). Each thread that runs a loop calls watch_exit(). A loop in a static variable
// is destroyed within its task if the task calls exit().
bool process_exits() noexcept;
void watch_exit() noexcept;

// Makes is_live_loop() true. Owned by the loop.
class LiveLoop {
 public:
  explicit LiveLoop(const Loop& loop);  // Throws std::bad_alloc.
  LiveLoop(const LiveLoop&) = delete;
  LiveLoop& operator=(const LiveLoop&) = delete;
  ~LiveLoop();

 private:
  const Loop& loop_;
};

}  // namespace hawser::exec
