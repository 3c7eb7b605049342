// Calls that are begun by one thread, and end later.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/blocking_client/fixture.h"

namespace hawser::blocking_test {

TEST_F(Blocking, AStartedCallIsAwaitedLater) {
  const auto own = client();
  std::vector<StartedCall<echo>> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(own->start<echo>("call " + std::to_string(i)));
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].get(), "call " + std::to_string(i));
  EXPECT_ERROR(calls[0].get(), invalid_argument, "get() was called before");

  auto waiting = own->start<&Gate::wait>();
  EXPECT_FALSE(waiting.wait_for(2ms));
  EXPECT_FALSE(waiting.done());
  gate.open.store(true);
  EXPECT_TRUE(waiting.wait_for(patience));
  EXPECT_TRUE(waiting.done());
  EXPECT_EQ(waiting.get(), 7);
}

TEST_F(Blocking, ACoroutineAwaitsAStartedCallOnItsOwnLoop) {
  const auto own = client();
  auto held = own->start<&Gate::wait>();
  gate.until_waiting(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      sync_wait([](BlockingClient& on, int number) -> Task<void> {
        const std::thread::id thread = std::this_thread::get_id();
        for (int j = 0; j < 50; ++j) {
          auto started = on.start<add>(number, j);
          if (j % 2 == 0) started.wait_for(patience);  // Has ended before it is awaited.
          const Result<int> sum = co_await started;
          EXPECT_EQ(sum, number + j);
          EXPECT_EQ(std::this_thread::get_id(), thread);
          const Result<int> again = co_await started;
          EXPECT_ERROR(again, invalid_argument, "get() was called before");
        }
      }(*own, i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Begun by a thread, awaited by a coroutine that has to wait.
  Loop loop;
  loop.post([&] { gate.open.store(true); });
  loop.run([](StartedCall<&Gate::wait>& waiting) -> Task<void> {
    const Result<int> result = co_await waiting;
    EXPECT_EQ(result, 7);
  }(held));
}

// The coroutine and its loop are destroyed before the call ends.
TEST_F(Blocking, ACoroutineThatAwaitsAStartedCallMayBeDestroyed) {
  const auto own = client();
  auto held = own->start<&Gate::wait>();
  gate.until_waiting(1);
  const auto await_it = [](StartedCall<&Gate::wait>& waiting) -> Task<void> {
    const Result<int> result = co_await waiting;
    EXPECT_EQ(result, 7);
  };
  {
    auto loop = std::make_unique<Loop>();
    Scope scope;
    loop->run([](Scope& in, Task<void> task) -> Task<void> {
      in.spawn(std::move(task));
      EXPECT_EQ(in.size(), 1U);
      co_return;
    }(scope, await_it(held)));
    scope.clear();
    loop.reset();
  }
  gate.open.store(true);
  EXPECT_TRUE(held.wait_for(patience));
  Scope scope;
  scope.spawn(await_it(held));  // Needs no loop, since the call has ended.
  EXPECT_TRUE(scope.empty());

  gate.open.store(false);
  auto second = own->start<&Gate::wait>();
  gate.until_waiting(2);
  scope.spawn([](StartedCall<&Gate::wait>& waiting) -> Task<void> {
    const Result<int> result = co_await waiting;
    EXPECT_ERROR(result, invalid_argument, "on a thread that runs no loop");
  }(second));
  EXPECT_TRUE(scope.empty());
  gate.open.store(true);
  EXPECT_EQ(second.get(), 7);
}

TEST_F(Blocking, AStartedCallCallsBack) {
  auto own = client();
  std::atomic<int> ended{0};
  auto held = own->start<&Gate::wait>();
  held.then([&](Result<int> result) {
    EXPECT_EQ(result, 7);
    own.reset();  // The last owner of the loops.
    ++ended;
  });
  EXPECT_TRUE(held.done());
  EXPECT_ERROR(held.get(), invalid_argument, "has no result");
  auto over = own->start<add>(1, 2);
  EXPECT_TRUE(over.wait_for(patience));
  over.then([&](Result<int> result) {
    EXPECT_EQ(result, 3);
    EXPECT_NE(Loop::current(), nullptr);
    ++ended;
  });
  EXPECT_TRUE(soon([&] { return ended == 1; }));
  over.then([&](Result<int> result) {  // At once, since there is no call.
    EXPECT_ERROR(result, invalid_argument, "has no result");
    ++ended;
  });
  EXPECT_EQ(ended, 2);
  gate.open.store(true);
  EXPECT_TRUE(soon([&] { return ended == 3; }));
  EXPECT_EQ(own, nullptr);
}

// get(), then(), co_await and cancel() on many threads, while the client ends.
TEST_F(Blocking, StartedCallsEndOnceEach) {
  for (int round = 0; round < 3; ++round) {
    auto own = client();
    gate.open.store(round == 0);
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    constexpr int each = 40;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, on = own.get(), i] {
        Loop loop;
        for (int j = 0; j < each; ++j) {
          auto started = on->start<&Gate::wait>(CallOptions{.timeout = j % 7 == 0 ? Duration(1ms) : patience});
          if ((i + j) % 3 == 0) started.cancel();
          switch (j % 4) {
            case 0: started.then([&](const Result<int>&) { ++ended; }); break;
            case 1:
              started.cancel();
              static_cast<void>(started.get());
              ++ended;
              break;
            case 2:
              if (round != 0) started.cancel();
              loop.run([](StartedCall<&Gate::wait> waiting) -> Task<void> {
                static_cast<void>(co_await waiting);
              }(std::move(started)));
              ++ended;
              break;
            default: ++ended;  // Dropped.
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    own.reset();  // Ends the calls whose callbacks have not run.
    EXPECT_TRUE(soon([&] { return ended == 8 * each; }));
  }
}

TEST_F(Blocking, AStartedCallIsCancelledOrDropped) {
  const auto own = client();
  {
    auto cancelled = own->start<&Gate::wait>(CallOptions{.timeout = patience});
    gate.until_waiting(1);
    cancelled.cancel();
    EXPECT_ERROR(cancelled.get(), cancelled, "cancelled");
    auto dropped = own->start<&Gate::wait>();
    gate.until_waiting(2);
    dropped = own->start<&Gate::wait>();
    gate.until_waiting(3);
  }
  EXPECT_TRUE(gate.sees_cancelled(3));
  auto outlives = own->start<&Gate::wait>();
  gate.until_waiting(4);
  own->close();
  EXPECT_ERROR(outlives.get(), outcome_unknown, "closed");
}

}  // namespace hawser::blocking_test
