#include "hawser/sync.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
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
    co_await scope.join();
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
      out = co_await on.wait(std::move(token));
    }(event, stop.get_token(), result));
    EXPECT_FALSE(result);
    stop.request_stop();
    co_await scope.join();
    EXPECT_EQ(result.value().error().code, ErrorCode::cancelled);
    const Result<void> stopped = co_await event.wait(stop.get_token());
    EXPECT_FALSE(stopped);
    event.set();
    const Result<void> there = co_await event.wait(stop.get_token());
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
    co_await scope.join();
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
    co_await second.join();
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
    co_await small.join();
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
      out = co_await on.acquire(1, std::move(token));
    }(semaphore, stop.get_token(), result));
    permit.release();
    stop.request_stop();
    co_await scope.join();
    EXPECT_TRUE(result.value()) << "the permit had been granted";
    EXPECT_EQ(semaphore.available(), 0U);
    result.reset();
    EXPECT_EQ(semaphore.available(), 1U);
  });
}

Task<void> hold_lock(Mutex& mutex) { const Permit permit = co_await mutex.lock(); }

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
    co_await scope.join();
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
    co_await scope.join();
    EXPECT_EQ(order, "x");
    Latch open(0);
    co_await open.wait();
  });
}

// Requests behind it do not wait forever either.
TEST_F(SyncTest, ARequestForNoPermitsIsServedInItsTurn) {
  run([&]() -> Task<void> {
    Semaphore semaphore(1);
    Permit permit = semaphore.try_acquire();
    Scope scope;
    scope.spawn(hold(loop, semaphore, 1, 'a', order));
    scope.spawn(hold(loop, semaphore, 0, 'z', order));
    scope.spawn(hold(loop, semaphore, 1, 'b', order));
    permit.release();
    co_await scope.join();
    EXPECT_EQ(order, "azb");
  });
}

TEST_F(SyncTest, ANamedAwaiterMayBeAwaitedAgain) {
  run([&]() -> Task<void> {
    Event event;
    Scope scope;
    scope.spawn([](Event& on, std::string& out) -> Task<void> {
      auto waiting = on.wait();
      co_await waiting;
      out += '1';
      on.reset();
      co_await waiting;
      out += '2';
    }(event, order));
    event.set();
    co_await loop.sleep(milliseconds(1));
    EXPECT_EQ(order, "1");
    event.set();
    scope.clear();  // The waiter is about to be resumed for the second time.
    co_await loop.sleep(milliseconds(1));
    EXPECT_EQ(order, "1");
  });
}

TEST_F(SyncTest, AnEventMayGoOnceItIsSet) {
  run([&]() -> Task<void> {
    std::optional<Event> event(std::in_place);
    Scope scope;
    scope.spawn(note_after(*event, 'a', order));
    scope.spawn([](Event& on, std::stop_token token, std::string& out) -> Task<void> {
      const Result<void> result = co_await on.wait(std::move(token));
      EXPECT_TRUE(result);
      out += 'b';
    }(*event, std::stop_source().get_token(), order));
    event->set();
    event.reset();
    co_await scope.join();
    EXPECT_EQ(order, "ab");
  });
}

// Quadratic time would take minutes.
TEST_F(SyncTest, ManyWaitersThatAreResumedAndDestroyedTakeLinearTime) {
  run([&]() -> Task<void> {
    Event event;
    Scope scope;
    for (int i = 0; i < 100'000; ++i) scope.spawn(note_after(event, 'a', order));
    event.set();
    scope.clear();
    co_await loop.sleep(milliseconds(1));
    EXPECT_EQ(order, "");
  });
}

TEST_F(SyncTest, UseFromAnotherThreadEndsTheProcessWithAText) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(run([&]() -> Task<void> {
                 Event event;
                 Scope scope;
                 scope.spawn(note_after(event, 'a', order));
                 std::thread([&] { event.set(); }).join();
                 co_return;
               }),
               "other than the one that runs the loop; use Loop::post");
  EXPECT_DEATH(run([&]() -> Task<void> {
                 std::stop_source stop;
                 Scope scope;
                 scope.spawn([](Loop& on, std::stop_token token) -> Task<void> {
                   (void)co_await on.sleep(milliseconds(1), std::move(token));
                 }(loop, stop.get_token()));
                 std::thread([&] { stop.request_stop(); }).join();
                 co_return;
               }),
               "other than the one that runs the loop; use Loop::post");
  EXPECT_DEATH(run([&]() -> Task<void> {
                 Mutex mutex;
                 Scope scope;
                 const Permit permit = mutex.try_lock();
                 scope.spawn(hold_lock(mutex));
                 std::thread([&] { sync_wait(hold_lock(mutex)); }).join();
                 co_return;
               }),
               "coroutines of two loops wait for one");
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
  // The permit is granted, and the waiter has not been resumed yet.
  EXPECT_DEATH(run([&]() -> Task<void> {
                 Scope scope;
                 Mutex mutex;
                 Permit permit = mutex.try_lock();
                 scope.spawn(hold_lock(mutex));
                 permit.release();
                 co_return;
               }),
               "destroyed while a coroutine waits");
  EXPECT_DEATH(run([&]() -> Task<void> {
                 Permit permit;
                 Mutex mutex;
                 permit = mutex.try_lock();
                 co_return;
               }),
               "destroyed while a Permit is held");
  EXPECT_DEATH(run([&]() -> Task<void> {
                 Scope scope;
                 Channel<int> channel(1);
                 scope.spawn([](Channel<int>& from) -> Task<void> { (void)co_await from.receive(); }(channel));
                 channel.close();
                 co_return;
               }),
               "destroyed while a coroutine waits");
}

}  // namespace
}  // namespace hawser
