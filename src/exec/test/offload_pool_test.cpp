#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/test/loop_testing.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;

struct OffloadTest : LoopTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, OffloadTest, every_loop(), name_of);

TEST_P(OffloadTest, WorkRunsElsewhereAndItsResultComesBack) {
  loop.run([](Loop& self) -> Task<void> {
    const std::thread::id here = std::this_thread::get_id();
    const Result<std::string> result = co_await self.offload([here] {
      EXPECT_NE(std::this_thread::get_id(), here);
      EXPECT_EQ(Loop::current(), nullptr);
      return std::string("done");
    });
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_EQ(result.value(), "done");
    const Result<void> none = co_await self.offload([] {});
    EXPECT_TRUE(none.has_value());
  }(loop));
}

TEST_P(OffloadTest, ResultsThatOnlyMove) {
  loop.run([](Loop& self) -> Task<void> {
    const Result<std::unique_ptr<int>> result =
        co_await self.offload([value = std::make_unique<int>(3)]() mutable { return std::move(value); });
    EXPECT_EQ(**result, 3);
  }(loop));
}

TEST_P(OffloadTest, ExceptionsReachTheAwaiter) {
  loop.run([](Loop& self) -> Task<void> {
    auto working = self.offload([]() -> int { throw std::runtime_error("wrong"); });
    bool caught = false;
    try {
      (void)co_await std::move(working);
    } catch (const std::runtime_error& error) {
      caught = std::string(error.what()) == "wrong";
    }
    EXPECT_TRUE(caught);
  }(loop));
}

TEST_P(OffloadTest, TheLoopGoesOnMeanwhile) {
  loop.run([](Loop& self) -> Task<void> {
    std::promise<void> release;
    Scope scope;
    bool done = false;
    scope.spawn([](Loop& on, std::future<void> gate, bool& flag) -> Task<void> {
      (void)co_await on.offload([waiting = std::move(gate)] { waiting.wait(); });
      flag = true;
    }(self, release.get_future(), done));
    co_await self.sleep(milliseconds(2));
    EXPECT_FALSE(done);
    release.set_value();
    co_await scope.join();
    EXPECT_TRUE(done);
  }(loop));
}

// Work without an awaiter still ends by itself. Its result is dropped on the loop.
TEST_P(OffloadTest, ADroppedAwaiterIsNotResumed) {
  auto alive = std::make_shared<int>(0);
  std::promise<void> release;
  std::atomic<bool> ended{false};
  loop.run([](Loop& self, std::promise<void>& gate, std::atomic<bool>& flag, std::shared_ptr<int> held) -> Task<void> {
    {
      Scope scope;
      scope.spawn(
          [](Loop& on, std::future<void> waiting, std::atomic<bool>& done, std::shared_ptr<int> token) -> Task<void> {
            (void)co_await on.offload([opened = std::move(waiting), &done, token] {
              opened.wait();
              done = true;
            });
            ADD_FAILURE() << "resumed after its end";
          }(self, gate.get_future(), flag, held));
      held.reset();
    }
    gate.set_value();
    while (!flag) co_await self.sleep(milliseconds(1));
    co_await self.sleep(milliseconds(2));
  }(loop, release, ended, alive));
  EXPECT_TRUE(ended);
}

TEST_P(OffloadTest, PastItsBoundItIsOverloaded) {
  LoopOptions options = options_of(GetParam());
  options.offload_threads_max = 1;
  options.offload_queue_max = 2;
  std::atomic<int> ran{0};
  {
    Loop small(options);
    small.run([](Loop& self, std::atomic<int>& count) -> Task<void> {
      std::promise<void> release;
      const std::shared_future<void> gate = release.get_future().share();
      std::atomic<int> started{0};
      Scope scope;
      int overloaded = 0;
      const auto one = [](Loop& on, std::shared_future<void> wait_for, std::atomic<int>& begun, std::atomic<int>& total,
                          int& refused) -> Task<void> {
        const Result<void> result = co_await on.offload([wait_for, &begun, &total] {
          ++begun;
          wait_for.wait();
          ++total;
        });
        if (result) co_return;
        EXPECT_EQ(result.error().code, ErrorCode::overloaded);
        EXPECT_TRUE(result.error().not_executed());
        ++refused;
      };
      scope.spawn(one(self, gate, started, count, overloaded));
      while (started == 0) co_await self.sleep(milliseconds(1));
      // The only thread is busy: two pieces of work wait, and the others are refused at once.
      for (int i = 0; i < 5; ++i) scope.spawn(one(self, gate, started, count, overloaded));
      EXPECT_EQ(overloaded, 3);
      release.set_value();
      co_await scope.join();
      EXPECT_EQ(count, 3);
      scope.spawn(one(self, gate, started, count, overloaded));
      co_await scope.join();
      EXPECT_EQ(overloaded, 3) << "there is room again";
    }(small, ran));
  }
  EXPECT_EQ(ran, 4);
}

// Each piece of work ends when the pool has as many threads as it may have, so that no thread is idle before.
TEST_P(OffloadTest, ThreadsAreStartedUpToTheBound) {
  LoopOptions options = options_of(GetParam());
  options.offload_threads_max = 3;
  Loop bounded(options);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  bounded.run([](Loop& self, std::atomic<int>& now, std::atomic<int>& peak) -> Task<void> {
    Scope scope;
    for (int i = 0; i < 12; ++i) {
      scope.spawn([](Loop& on, std::atomic<int>& current, std::atomic<int>& top) -> Task<void> {
        (void)co_await on.offload([&] {
          const int mine = ++current;
          for (int seen = top; seen < mine && !top.compare_exchange_weak(seen, mine);) {
          }
          while (top < 3) std::this_thread::yield();
          --current;
        });
      }(self, now, peak));
    }
    co_await scope.join();
  }(bounded, running, most));
  EXPECT_EQ(most, 3);
}

// The work that runs ends when the work that waits has been dropped.
TEST_P(OffloadTest, DestroyingTheLoopEndsWhatRunsAndDropsWhatWaits) {
  std::atomic<int> ran{0};
  std::promise<void> release;
  std::shared_ptr<void> waits(nullptr, [&](void*) { release.set_value(); });
  const std::weak_ptr<void> alive = waits;
  {
    LoopOptions options = options_of(GetParam());
    options.offload_threads_max = 1;
    Loop ending(options);
    ending.run([](Loop& self, std::shared_future<void> gate, std::atomic<int>& count,
                  std::shared_ptr<void> token) -> Task<void> {
      Scope scope;
      const auto one = [](Loop& on, std::shared_future<void> opened, std::atomic<int>& total,
                          std::shared_ptr<void> held) -> Task<void> {
        (void)co_await on.offload([opened, &total, held] {
          ++total;
          opened.wait();
        });
      };
      scope.spawn(one(self, gate, count, nullptr));
      while (count == 0) co_await self.sleep(milliseconds(1));
      for (int i = 0; i < 2; ++i) scope.spawn(one(self, gate, count, token));
    }(ending, release.get_future().share(), ran, std::move(waits)));
    EXPECT_FALSE(alive.expired()) << "it waits for the thread";
  }
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(alive.expired()) << "nothing was leaked";
}

// A trim of the allocator starts such a thread also in loops whose application offloads nothing.
TEST(OffloadPool, AChildProcessDestroysALoopWithoutItsThreads) {
  auto loop = std::make_unique<Loop>();
  loop->run([](Loop& self) -> Task<void> {
    const Result<void> done = co_await self.offload([] {});
    EXPECT_TRUE(done.has_value());
  }(*loop));
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    alarm(30);  // Ends a child that waits for a thread.
    loop.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hawser::exec
