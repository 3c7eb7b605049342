#pragma once

#include <future>
#include <thread>
#include <type_traits>
#include <utility>

#include "hawser/loop.h"
#include "transport/common/pending_step.h"

namespace hawser::transport {

// A loop for tests. It runs in a thread of its own, or only within on() and rest().
class TestLoop {
 public:
  TestLoop(const LoopOptions& options, bool threaded) : loop_(options) {
    if (threaded) thread_ = std::thread([this] { loop_.run(); });
  }
  ~TestLoop() {
    if (!thread_.joinable()) return;
    loop_.stop();
    thread_.join();
  }
  Loop& loop() noexcept { return loop_; }
  bool threaded() const noexcept { return thread_.joinable(); }

  // Runs `work` on the loop and waits for its result.
  template <class F>
  auto on(F&& work) {
    using R = std::invoke_result_t<F&>;
    if (!threaded()) {
      auto task = [](auto& once) -> Task<R> { co_return once(); }(work);
      return loop_.run(std::move(task));
    }
    std::promise<R> done;
    loop_.post([&] {
      if constexpr (std::is_void_v<R>) {
        work();
        done.set_value();
      } else {
        done.set_value(work());
      }
    });
    return done.get_future().get();
  }
  // Runs a step of a handshake on the loop and waits until it has ended.
  template <class Begin>
  Result<void> finish(Begin begin) {
    if (!threaded()) return finish_step(loop_, std::move(begin));
    std::promise<Result<void>> done;
    loop_.post([&] { begin([&](const Result<void>& outcome) { done.set_value(outcome); }); });
    return done.get_future().get();
  }
  // Lets some time pass.
  void rest(Duration duration = std::chrono::microseconds(100)) {
    if (threaded()) return std::this_thread::sleep_for(duration);
    auto task = [](Loop& loop, Duration time) -> Task<void> { co_await loop.sleep(time); }(loop_, duration);
    loop_.run(std::move(task));
  }

 private:
  Loop loop_;
  std::thread thread_;
};

}  // namespace hawser::transport
