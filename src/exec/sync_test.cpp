#include "hawser/sync.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/channel.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/with_timeout.h"

namespace hawser {
namespace {

using std::chrono::milliseconds;

// Runs the body of a test as a coroutine on a loop with virtual time.
class SyncTest : public testing::Test {
 protected:
  template <class Body>
  void run(Body body) {
    loop.run(body());
  }
  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  std::string order;
};
using ChannelTest = SyncTest;
using WithTimeoutTest = SyncTest;

Task<void> note_after(Event& event, char name, std::string& order) {
  co_await event.wait();
  order += name;
}

TEST_F(SyncTest, EventResumesAllWaitersInOrderAndStaysSet) {
  run([&]() -> Task<void> {
    Event event;
    Scope scope;
    scope.spawn(note_after(event, 'a', order));
    scope.spawn(note_after(event, 'b', order));
    event.set();
    EXPECT_EQ(order, "") << "nobody is resumed from within set()";
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(order, "ab");
    co_await event.wait();
    event.reset();
    EXPECT_FALSE(event.is_set());
  });
}

TEST_F(SyncTest, EventWaitEndsByStop) {
  run([&]() -> Task<void> {
    Event event;
    std::stop_source stop;
    Scope scope;
    std::optional<Result<void>> result;
    scope.spawn([](Event& on, std::stop_token token, std::optional<Result<void>>& out) -> Task<void> {
      auto waiting = on.wait(std::move(token));
      out = co_await std::move(waiting);
    }(event, stop.get_token(), result));
    EXPECT_FALSE(result);
    stop.request_stop();
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(result.value().error().code, ErrorCode::cancelled);
    auto again = event.wait(stop.get_token());
    const Result<void> stopped = co_await std::move(again);
    EXPECT_FALSE(stopped);
    event.set();
    auto set = event.wait(stop.get_token());
    const Result<void> there = co_await std::move(set);
    EXPECT_TRUE(there) << "what has happened counts, whatever the token says";
  });
}

Task<void> hold(Loop& loop, Semaphore& semaphore, std::size_t count, char name, std::string& order) {
  const Permit permit = co_await semaphore.acquire(count);
  order += name;
  co_await loop.sleep(milliseconds(1));
}

TEST_F(SyncTest, SemaphoreBoundsAndServesInOrder) {
  run([&]() -> Task<void> {
    Semaphore semaphore(2);
    Scope scope;
    scope.spawn(hold(loop, semaphore, 1, 'a', order));
    scope.spawn(hold(loop, semaphore, 2, 'b', order));
    scope.spawn(hold(loop, semaphore, 1, 'c', order));
    EXPECT_EQ(order, "a") << "two permits for b are not there, and c does not overtake it";
    EXPECT_FALSE(semaphore.try_acquire(1));
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(order, "abc");
    EXPECT_EQ(semaphore.available(), 2U);
  });
}

TEST_F(SyncTest, AWaiterThatIsDestroyedPassesOnWhatItWasGranted) {
  run([&]() -> Task<void> {
    Semaphore semaphore(1);
    Permit permit = semaphore.try_acquire();
    Scope first;
    Scope second;
    first.spawn(hold(loop, semaphore, 1, 'a', order));
    second.spawn(hold(loop, semaphore, 1, 'b', order));
    permit.release();  // Granted to a, which is destroyed before it runs.
    first.clear();
    auto joined = second.join();
    co_await joined;
    EXPECT_EQ(order, "b");
    EXPECT_EQ(semaphore.available(), 1U);
  });
}

TEST_F(SyncTest, AWaiterThatLeavesTheQueueLetsSmallerRequestsPass) {
  run([&]() -> Task<void> {
    Semaphore semaphore(2);
    const Permit permit = semaphore.try_acquire(1);
    Scope large;
    Scope small;
    large.spawn(hold(loop, semaphore, 2, 'l', order));
    small.spawn(hold(loop, semaphore, 1, 's', order));
    EXPECT_EQ(order, "");
    large.clear();
    auto joined = small.join();
    co_await joined;
    EXPECT_EQ(order, "s");
  });
}

TEST_F(SyncTest, AcquireEndsByStopOnlyIfNothingWasGranted) {
  run([&]() -> Task<void> {
    Semaphore semaphore(1);
    Permit permit = semaphore.try_acquire();
    std::stop_source stop;
    Scope scope;
    std::optional<Result<Permit>> result;
    scope.spawn([](Semaphore& on, std::stop_token token, std::optional<Result<Permit>>& out) -> Task<void> {
      auto acquiring = on.acquire(1, std::move(token));
      out = co_await std::move(acquiring);
    }(semaphore, stop.get_token(), result));
    permit.release();
    stop.request_stop();
    auto joined = scope.join();
    co_await joined;
    EXPECT_TRUE(result.value()) << "the permit had been granted";
    EXPECT_EQ(semaphore.available(), 0U);
    result.reset();
    EXPECT_EQ(semaphore.available(), 1U);
  });
}

TEST_F(SyncTest, MutexAdmitsOne) {
  run([&]() -> Task<void> {
    Mutex mutex;
    int inside = 0;
    int most = 0;
    Scope scope;
    for (int i = 0; i < 5; ++i) {
      scope.spawn([](Loop& on, Mutex& one, int& now, int& max) -> Task<void> {
        const Permit lock = co_await one.lock();
        max = std::max(max, ++now);
        co_await on.sleep(milliseconds(1));
        --now;
      }(loop, mutex, inside, most));
    }
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(most, 1);
    EXPECT_FALSE(mutex.locked());
  });
}

TEST_F(SyncTest, LatchOpensAtZero) {
  run([&]() -> Task<void> {
    Latch latch(2);
    Scope scope;
    scope.spawn([](Latch& one, std::string& out) -> Task<void> {
      co_await one.wait();
      out += 'x';
    }(latch, order));
    latch.count_down();
    co_await loop.sleep(milliseconds(1));
    EXPECT_EQ(order, "");
    latch.count_down();
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(order, "x");
    Latch open(0);
    co_await open.wait();
  });
}

TEST_F(SyncTest, MisuseEndsTheProcessWithAText) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(Latch(1).count_down(2), "below zero");
  EXPECT_DEATH(run([&]() -> Task<void> {
                 Scope scope;
                 Event event;
                 scope.spawn(note_after(event, 'a', order));
                 co_return;
               }),
               "destroyed while a coroutine waits");
}

TEST_F(ChannelTest, KeepsOrderAndBoundsWhatWaits) {
  run([&]() -> Task<void> {
    Channel<std::unique_ptr<int>> channel(2);
    Scope scope;
    std::size_t most = 0;
    scope.spawn([](Channel<std::unique_ptr<int>>& to, std::size_t& max) -> Task<void> {
      for (int i = 0; i < 100; ++i) {
        auto sending = to.send(std::make_unique<int>(i));
        const Result<void> sent = co_await std::move(sending);
        EXPECT_TRUE(sent);
        max = std::max(max, to.size());
      }
      to.close();
    }(channel, most));
    int expected = 0;
    for (;;) {
      auto receiving = channel.receive();
      Result<std::unique_ptr<int>> item = co_await std::move(receiving);
      if (!item) {
        EXPECT_EQ(item.error().code, ErrorCode::unavailable);
        break;
      }
      EXPECT_EQ(**item, expected++);
    }
    EXPECT_EQ(expected, 100);
    EXPECT_EQ(most, 2U);
  });
}

TEST_F(ChannelTest, CloseRefusesSendersAndKeepsItems) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    EXPECT_TRUE(channel.try_send(7));
    EXPECT_FALSE(channel.try_send(8)) << "there is room for one";
    Scope scope;
    std::optional<Result<void>> sent;
    scope.spawn([](Channel<int>& to, std::optional<Result<void>>& out) -> Task<void> {
      auto sending = to.send(8);
      out = co_await std::move(sending);
    }(channel, sent));
    channel.close();
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(sent.value().error().code, ErrorCode::unavailable);
    EXPECT_FALSE(channel.try_send(9));
    EXPECT_EQ(channel.try_receive(), 7);
    EXPECT_EQ(channel.try_receive(), std::nullopt);
    auto receiving = channel.receive();
    const Result<int> none = co_await std::move(receiving);
    EXPECT_EQ(none.error().code, ErrorCode::unavailable);
  });
}

// The item that waits is reserved for a receiver that has not run yet: another one must not wait for it for ever.
TEST_F(ChannelTest, AReceiverAfterCloseDoesNotWaitForAnItemOfAnother) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    Scope scope;
    scope.spawn([](Channel<int>& from) -> Task<void> {
      auto receiving = from.receive();
      const Result<int> item = co_await std::move(receiving);
      EXPECT_EQ(item.value(), 7);
    }(channel));
    EXPECT_TRUE(channel.try_send(7));
    channel.close();
    auto receiving = channel.receive();
    const Result<int> none = co_await std::move(receiving);
    EXPECT_EQ(none.error().code, ErrorCode::unavailable);
    auto joined = scope.join();
    co_await joined;
  });
}

TEST_F(ChannelTest, ReceiveEndsByStop) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    std::stop_source stop;
    stop.request_stop();
    auto receiving = channel.receive(stop.get_token());
    const Result<int> none = co_await std::move(receiving);
    EXPECT_EQ(none.error().code, ErrorCode::cancelled);
    EXPECT_TRUE(channel.try_send(1));
    auto again = channel.receive(stop.get_token());
    const Result<int> one = co_await std::move(again);
    EXPECT_EQ(one.value(), 1) << "an item that is there is received";
  });
}

TEST_F(WithTimeoutTest, GivesTheResultOrTheDeadline) {
  run([&]() -> Task<void> {
    const auto wait = [this](Duration how_long) {
      return [this, how_long](std::stop_token token) -> Task<Result<int>> {
        auto sleeping = loop.sleep(how_long, std::move(token));
        const Result<void> slept = co_await std::move(sleeping);
        if (!slept) co_return std::unexpected(slept.error());
        co_return 5;
      };
    };
    const Time start = loop.now();
    auto quick = with_timeout(milliseconds(10), wait(milliseconds(3)));
    const Result<int> five = co_await std::move(quick);
    EXPECT_EQ(five.value(), 5);
    auto slow = with_timeout(milliseconds(10), wait(milliseconds(30)));
    const Result<int> late = co_await std::move(slow);
    EXPECT_EQ(late.error().code, ErrorCode::deadline_exceeded);
    EXPECT_LT(loop.now() - start, milliseconds(14)) << "the work was stopped at its deadline";
    std::stop_source stop;
    stop.request_stop();
    auto stopped = with_timeout(milliseconds(10), wait(milliseconds(3)), stop.get_token());
    const Result<int> cancelled = co_await std::move(stopped);
    EXPECT_EQ(cancelled.error().code, ErrorCode::cancelled);
  });
}

}  // namespace
}  // namespace hawser
