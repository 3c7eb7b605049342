#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "exec/loop_statistics.h"
#include "exec/offload_pool.h"
#include "exec/sim_poller.h"
#include "hawser/detail/loop_access.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "heap/allocator_trim.h"
#include "heap/frame_pool.h"
#include "heap/idle_memory.h"

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int burst = 20'000;

// Time passes as if the loop had slept as long as it wanted. Calls `at_rest` when it sleeps without a limit.
class PassingPoller final : public Poller {
 public:
  std::string_view name() const noexcept override { return "passing"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration timeout, Time& now) override {
    if (timeout == forever) {
      at_rest();
    } else {
      now_ += timeout;
    }
    now = now_;
    return 0;
  }
  void wake() noexcept override {}
  void watch(int, Watcher&) override { throw std::logic_error("no descriptor is watched"); }
  void unwatch(int, Watcher&) noexcept override {}

  std::function<void()> at_rest;

 private:
  Time now_{std::chrono::steady_clock::now().time_since_epoch()};
};

// As many coroutines at the same time.
Task<void> run_burst(Loop& loop, int count = burst) {
  Scope scope;
  for (int i = 0; i < count; ++i) {
    scope.spawn([](Loop& on) -> Task<void> { co_await on.sleep(milliseconds(10)); }(loop));
  }
  co_await scope.join();
}

// Each test has the caches of a thread of its own.
class LoopMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!FramePool::pooled) GTEST_SKIP() << "frames are not pooled with the address sanitizer";
    AllocatorTrim::of_process().run();  // Earlier tests have requested it.
  }
  static void on_new_thread(const auto& work) { std::thread(work).join(); }
  static std::size_t cached_frames() { return FramePool::local().cached_bytes(); }
};

TEST_F(LoopMemory, AnIdleLoopReturnsWhatABurstHasLeft) {
  on_new_thread([] {
    auto made = std::make_unique<PassingPoller>();
    PassingPoller& poller = *made;
    Loop loop(std::move(made), {.wait = Wait::event});
    poller.at_rest = [&] { loop.stop(); };
    loop.run(run_burst(loop));
    const Time end = loop.now();
    EXPECT_GE(cached_frames(), burst * FramePool::class_bytes);
    EXPECT_EQ(detail::LoopAccess::statistics(loop).cached.frame_bytes, 0U) << "no thread runs the loop";
    std::size_t at_begin = 0;
    loop.post([&] { at_begin = detail::LoopAccess::statistics(loop).cached.frame_bytes; });
    loop.run();  // Until it sleeps without a limit.
    EXPECT_GE(at_begin, burst * FramePool::class_bytes);
    EXPECT_EQ(cached_frames(), 0U);
    EXPECT_LE(loop.now() - end, 2 * idle_memory_period + seconds(1));
  });
}

// The loop sleeps without a limit when a thread has begun the trim.
TEST_F(LoopMemory, ALoopTrimsTheAllocatorAfterABurst) {
  on_new_thread([] {
    auto made = std::make_unique<PassingPoller>();
    PassingPoller& poller = *made;
    Loop loop(std::move(made), {.wait = Wait::event});
    poller.at_rest = [&] { loop.stop(); };
    const std::uint64_t before = AllocatorTrim::of_process().runs();
    loop.run(run_burst(loop, static_cast<int>(AllocatorTrim::returned_bytes_min / FramePool::class_bytes)));
    ASSERT_GE(cached_frames(), AllocatorTrim::returned_bytes_min);
    loop.run();
    const auto limit = std::chrono::steady_clock::now() + seconds(60);
    while (AllocatorTrim::of_process().runs() == before && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    EXPECT_GT(AllocatorTrim::of_process().runs(), before);
    EXPECT_NE(detail::LoopAccess::statistics(loop).offload_threads, 0U) << "a loop has no time for it";
  });
}

TEST_F(LoopMemory, AnIdleLoopReturnsTheListsOfReadyCoroutines) {
  on_new_thread([] {
    auto made = std::make_unique<PassingPoller>();
    PassingPoller& poller = *made;
    Loop loop(std::move(made), {.wait = Wait::event});
    poller.at_rest = [&] { loop.stop(); };
    loop.run(run_burst(loop));
    FramePool::local().clear();
    const Time end = loop.now();
    loop.run();  // It wakes for nothing else than the lists.
    EXPECT_GE(loop.now() - end, idle_memory_period);
    EXPECT_LE(loop.now() - end, 2 * idle_memory_period + seconds(1));
  });
}

TEST_F(LoopMemory, ALoopWithLittleWorkReturnsWhatABurstHasLeft) {
  on_new_thread([] {
    Loop loop(std::make_unique<SimPoller>(), {});
    loop.run([](Loop& self) -> Task<void> {
      co_await run_burst(self);
      EXPECT_GE(cached_frames(), burst * FramePool::class_bytes);
      const Time end = self.now();
      while (self.now() - end < 2 * idle_memory_period + seconds(1)) co_await self.sleep(milliseconds(1));
      EXPECT_LE(cached_frames(), 4096U) << "frames that the little work uses";
    }(loop));
  });
}

// Handlers may be destroyed on another thread than the one that has made them.
TEST_F(LoopMemory, FramesThatEndElsewhereAreNotKept) {
  const auto coroutine = []() -> Task<void> { co_return; };
  std::vector<Task<void>> made;
  on_new_thread([&] {
    for (int i = 0; i < burst; ++i) made.push_back(coroutine());
  });
  on_new_thread([&] {
    made.clear();
    EXPECT_EQ(cached_frames(), 0U);
  });
}

TEST_F(LoopMemory, OffloadThreadsReturnWhatABurstHasLeft) {
  std::atomic<std::size_t> kept{0};
  OffloadPool pool(1, 16, nullptr, milliseconds(1));
  struct Work final : detail::Posted {
    explicit Work(std::function<void()> given) : function(std::move(given)) {}
    void run() noexcept override { function(); }
    std::function<void()> function;
  };
  ASSERT_NE(pool.submit(nullptr, std::make_unique<Work>([&] {
                          std::vector<void*> frames(burst);
                          for (void*& frame : frames) frame = detail::allocate_frame(100);
                          for (void* const frame : frames) detail::free_frame(frame, 100);
                          kept.store(cached_frames());
                        })),
            0U);
  while (kept.load() == 0) std::this_thread::yield();
  EXPECT_GE(kept.load(), burst * FramePool::class_bytes);
  EXPECT_EQ(pool.caches().threads, 1U);
  const auto limit = std::chrono::steady_clock::now() + seconds(60);
  while (pool.caches().bytes.frame_bytes != 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(pool.caches().bytes.frame_bytes, 0U);
}

}  // namespace
}  // namespace hawser::exec
