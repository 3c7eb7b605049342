#pragma once

#include <sys/mman.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>

#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::testing_tools {

// A loop in memory of its own. After end(), an access to the loop ends the process.
class EndingLoop {
 public:
  EndingLoop() : memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    begin();
  }
  EndingLoop(const EndingLoop&) = delete;
  EndingLoop& operator=(const EndingLoop&) = delete;
  ~EndingLoop() {
    if (loop_ != nullptr) end();
    munmap(memory_, bytes);
  }

  Loop& operator*() const noexcept { return *loop_; }
  Loop* operator->() const noexcept { return loop_; }
  void end() {
    std::destroy_at(std::exchange(loop_, nullptr));
    mprotect(memory_, bytes, PROT_NONE);
  }
  // Makes another loop at the same address.
  void begin() {
    mprotect(memory_, bytes, PROT_READ | PROT_WRITE);
    loop_ = ::new (memory_) Loop(LoopOptions{.log = no_log()});
  }

 private:
  static constexpr std::size_t bytes = 64 * 1024;
  static_assert(sizeof(Loop) <= bytes);
  void* const memory_;
  Loop* loop_ = nullptr;
};

// Runs `prepare` on a loop, and then `wait` in a scope, which must be suspended when nothing happens any more. Calls
// `before_end`. The loop ends, and then the scope.
inline void destroy_after_loop(
    const std::function<Task<void>(Loop&)>& prepare, const std::function<Task<void>(Loop&)>& wait, bool another_loop,
    const std::function<void()>& before_end = [] {}) {
  EndingLoop loop;
  Scope scope;
  loop->run(prepare(*loop));
  loop->run([](Loop& here, Scope& tasks, const std::function<Task<void>(Loop&)>& waits) -> Task<void> {
    tasks.spawn(waits(here));
    for (int i = 0; i < 20; ++i) {
      co_await here.sleep(1ms);
    }
  }(*loop, scope, wait));
  EXPECT_EQ(scope.size(), 1U) << "the coroutine does not wait";
  before_end();
  loop.end();
  if (!another_loop) return scope.clear();
  loop.begin();
  loop->run([](Scope& tasks, Loop& here) -> Task<void> {
    tasks.clear();
    co_await here.sleep(1ms);
  }(scope, *loop));
}

}  // namespace hawser::testing_tools
