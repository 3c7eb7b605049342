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

// Nobody behind it waits for ever either.
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
    scope.clear();  // It is about to be resumed for the second time.
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
      auto waiting = on.wait(std::move(token));
      const Result<void> result = co_await std::move(waiting);
      EXPECT_TRUE(result);
      out += 'b';
    }(*event, std::stop_source().get_token(), order));
    event->set();
    event.reset();
    co_await scope.join();
    EXPECT_EQ(order, "ab");
  });
}

// Quadratic time would be minutes.
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
                   auto sleeping = on.sleep(milliseconds(1), std::move(token));
                   (void)co_await std::move(sleeping);
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
  // Granted, and not resumed yet.
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
                 scope.spawn([](Channel<int>& from) -> Task<void> {
                   auto receiving = from.receive();
                   (void)co_await std::move(receiving);
                 }(channel));
                 channel.close();
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

// Moves throw when they are told to.
struct Fragile {
  explicit Fragile(bool& on) : throws(&on) {}
  Fragile(Fragile&& other) : throws(other.throws) {
    if (*throws) throw std::runtime_error("does not move");
  }
  bool* throws;
};

TEST_F(ChannelTest, AnItemWhoseMoveThrowsCostsNoRoomAndIsNotLost) {
  run([&]() -> Task<void> {
    bool throws = false;
    Channel<Fragile> channel(1);
    Fragile item(throws);
    throws = true;
    EXPECT_THROW(channel.try_send(std::move(item)), std::runtime_error);
    throws = false;
    EXPECT_TRUE(channel.try_send(std::move(item))) << "the place that was taken for it is free again";
    throws = true;
    EXPECT_THROW(channel.try_receive(), std::runtime_error);
    EXPECT_EQ(channel.size(), 1U);
    throws = false;
    EXPECT_TRUE(channel.try_receive()) << "it can still be received";
    EXPECT_TRUE(channel.try_send(std::move(item)));
    co_return;
  });
}

TEST_F(ChannelTest, CloseRefusesASenderThatHadRoomAlready) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    EXPECT_TRUE(channel.try_send(1));
    Scope scope;
    int refused = 0;
    for (int i = 0; i < 3; ++i) {
      scope.spawn([](Channel<int>& to, int& count) -> Task<void> {
        auto sending = to.send(2);
        const Result<void> sent = co_await std::move(sending);
        if (!sent && sent.error().code == ErrorCode::unavailable) ++count;
      }(channel, refused));
    }
    EXPECT_EQ(channel.try_receive(), 1);
    channel.close();
    co_await scope.join();
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(channel.size(), 0U);
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

TEST_F(WithTimeoutTest, WorkThatIgnoresTheStopIsAwaited) {
  run([&]() -> Task<void> {
    const Time start = loop.now();
    const auto deaf = [this](std::stop_token) -> Task<Result<int>> {
      co_await loop.sleep(milliseconds(30));
      co_return 5;
    };
    auto late = with_timeout(milliseconds(10), deaf);
    const Result<int> outcome = co_await std::move(late);
    EXPECT_EQ(outcome.error().code, ErrorCode::deadline_exceeded);
    EXPECT_GE(loop.now() - start, milliseconds(30));
    const auto throwing = [this](std::stop_token) -> Task<Result<int>> {
      co_await loop.sleep(milliseconds(10));
      throw std::runtime_error("thrown by the work");
    };
    auto too_late = with_timeout(milliseconds(3), throwing);
    const Result<int> dropped = co_await std::move(too_late);
    EXPECT_EQ(dropped.error().code, ErrorCode::deadline_exceeded);
    bool thrown = false;
    try {
      auto in_time = with_timeout(milliseconds(30), throwing);
      (void)co_await std::move(in_time);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    EXPECT_TRUE(thrown);
  });
}

TEST_F(WithTimeoutTest, WorkThatTheParentStopsGivesItsResult) {
  run([&]() -> Task<void> {
    std::stop_source stop;
    Scope scope;
    std::optional<Result<int>> result;
    const auto partial = [this](std::stop_token token) -> Task<Result<int>> {
      auto sleeping = loop.sleep(milliseconds(100), std::move(token));
      (void)co_await std::move(sleeping);
      co_await loop.sleep(milliseconds(50));  // Beyond the time limit: the stop came first.
      co_return 42;
    };
    scope.spawn([](auto& work, std::stop_token token, std::optional<Result<int>>& out) -> Task<void> {
      auto limited = with_timeout(milliseconds(10), work, std::move(token));
      out = co_await std::move(limited);
    }(partial, stop.get_token(), result));
    stop.request_stop();
    co_await scope.join();
    EXPECT_EQ(result.value().value(), 42);
  });
}

TEST_F(WithTimeoutTest, AStopCallbackMayDestroyIt) {
  run([&]() -> Task<void> {
    std::optional<Scope> scope(std::in_place);
    scope->spawn([](Loop& on, std::optional<Scope>& owner) -> Task<void> {
      const auto work = [&on, &owner](std::stop_token token) -> Task<Result<int>> {
        const std::stop_callback destroy(token, [&owner] { owner.reset(); });
        co_await on.sleep(milliseconds(100));
        co_return 1;
      };
      auto limited = with_timeout(milliseconds(5), work);
      (void)co_await std::move(limited);
    }(loop, scope));
    co_await loop.sleep(milliseconds(20));
    EXPECT_FALSE(scope);
  });
}

}  // namespace
}  // namespace hawser
