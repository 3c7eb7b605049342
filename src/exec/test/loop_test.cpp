#include "hawser/loop.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "exec/test/loop_testing.h"
#include "hawser/embedded_loop.h"
#include "hawser/scope.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;

INSTANTIATE_TEST_SUITE_P(Kinds, LoopTest, every_loop(), name_of);

Task<int> seven() { co_return 7; }

TEST_P(LoopTest, RunsATaskToItsEnd) {
  EXPECT_EQ(Loop::current(), nullptr);
  const int value = loop.run([](Loop& self) -> Task<int> {
    EXPECT_EQ(Loop::current(), &self);
    co_return co_await seven() + 1;
  }(loop));
  EXPECT_EQ(value, 8);
  EXPECT_EQ(Loop::current(), nullptr);
}

TEST_P(LoopTest, ThrowsWhatTheTaskThrows) {
  const auto failing = []() -> Task<void> {
    throw std::runtime_error("wrong");
    co_return;
  };
  EXPECT_THROW(loop.run(failing()), std::runtime_error);
  EXPECT_EQ(Loop::current(), nullptr);
  EXPECT_EQ(loop.run(seven()), 7) << "the loop is still usable";
}

TEST_P(LoopTest, SleepsAtLeastThatLong) {
  loop.run([](Loop& self) -> Task<void> {
    const Time start = self.now();
    co_await self.sleep(milliseconds(3));
    EXPECT_GE(self.now() - start, milliseconds(3));
    EXPECT_LT(self.now() - start, std::chrono::seconds(20));
  }(loop));
}

TEST_P(LoopTest, SleepersWakeInOrderOfTheirTimes) {
  std::vector<int> order;
  loop.run([](Loop& self, std::vector<int>& out) -> Task<void> {
    Scope scope;
    const auto sleeper = [](Loop& on, std::vector<int>& log, int id, Duration duration) -> Task<void> {
      co_await on.sleep(duration);
      log.push_back(id);
    };
    scope.spawn(sleeper(self, out, 3, milliseconds(6)));
    scope.spawn(sleeper(self, out, 1, milliseconds(0)));
    scope.spawn(sleeper(self, out, 2, milliseconds(3)));
    co_await scope.join();
  }(loop, order));
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST_P(LoopTest, ASleepIsEndedByItsToken) {
  std::stop_source stop;
  loop.run([](Loop& self, std::stop_source& source) -> Task<void> {
    Scope scope;
    bool ended = false;
    scope.spawn([](Loop& on, std::stop_token token, bool& done) -> Task<void> {
      const Result<void> slept = co_await on.sleep(forever, token);
      EXPECT_FALSE(slept.has_value());
      EXPECT_EQ(slept.error().code, ErrorCode::cancelled);
      done = true;
    }(self, source.get_token(), ended));
    co_await self.sleep(milliseconds(1));
    EXPECT_FALSE(ended);
    source.request_stop();
    co_await scope.join();
    EXPECT_TRUE(ended);
    const Result<void> too_late = co_await self.sleep(forever, source.get_token());
    EXPECT_FALSE(too_late.has_value());
  }(loop, stop));
}

TEST_P(LoopTest, DroppedSleepersAreNotResumed) {
  loop.run([](Loop& self) -> Task<void> {
    {
      Scope scope;
      for (const int ms : {0, 1, 5}) {
        scope.spawn([](Loop& on, int duration_ms) -> Task<void> {
          co_await on.sleep(milliseconds(duration_ms));
          if (duration_ms != 0) ADD_FAILURE() << "resumed after its end";
        }(self, ms));
      }
      // Drops both a timer that is running and a timer that has fired without resuming its sleeper yet.
      MemberTimer<&Scope::clear> clear(scope);
      clear.start(self, self.now() + milliseconds(1));
      co_await self.sleep(milliseconds(2));
      EXPECT_TRUE(scope.empty());
    }
    co_await self.sleep(milliseconds(6));
  }(loop));
}

TEST_P(LoopTest, PostedWorkRunsInOrderOfItsThread) {
  constexpr int threads = 4;
  constexpr int each = 2000;
  std::array<int, threads> next{};
  int total = 0;
  std::vector<std::thread> posters;
  for (int id = 0; id < threads; ++id) {
    posters.emplace_back([&, id] {
      for (int i = 0; i < each; ++i) {
        loop.post([&, id, i] {
          EXPECT_EQ(Loop::current(), &loop);
          EXPECT_EQ(next[static_cast<std::size_t>(id)]++, i);
          if (++total == threads * each) loop.stop();
        });
        if (i % 500 == 0) std::this_thread::yield();
      }
    });
  }
  loop.run();
  for (std::thread& poster : posters) poster.join();
  EXPECT_EQ(total, threads * each);
}

// Each message is sent when the loop has just begun to sleep after the previous message, or just before. No message may
// be lost.
TEST_P(LoopTest, IsWokenFromSleep) {
  std::atomic<int> seen{0};
  std::thread poster([&] {
    for (int i = 1; i <= 200; ++i) {
      if (i % 20 == 0) std::this_thread::sleep_for(milliseconds(1));
      loop.post([&] { seen.fetch_add(1); });
      while (seen.load() != i) std::this_thread::yield();
    }
    loop.stop();
  });
  loop.run();
  poster.join();
  EXPECT_EQ(seen.load(), 200);
}

TEST_P(LoopTest, StopBeforeRunIsKept) {
  loop.stop();
  loop.run();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(2));
    loop.stop();
  });
  loop.run();
  stopper.join();
}

TEST_P(LoopTest, RunsOnOtherThreadsOneAfterTheOther) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  struct Counting final : Watcher {
    explicit Counting(int on) : fd(on) {}
    void on_ready(Readiness readiness) override {
      char byte;
      if (readiness.readable && read(fd, &byte, 1) == 1) ++bytes;
    }
    int fd;
    int bytes = 0;
  } watcher(ends[0]);
  loop.poller().watch(ends[0], watcher);
  for (int round = 1; round <= 3; ++round) {
    std::thread([&] {
      ASSERT_EQ(write(ends[1], "x", 1), 1);
      loop.run([](Loop& self, Counting& counting, int expected) -> Task<void> {
        for (int i = 0; i < 2000 && counting.bytes < expected; ++i) co_await self.sleep(milliseconds(1));
      }(loop, watcher, round));
    }).join();
    EXPECT_EQ(watcher.bytes, round);
  }
  loop.poller().unwatch(ends[0], watcher);
  close(ends[0]);
  close(ends[1]);
}

TEST_P(LoopTest, PostedWorkThatIsNeverRunIsFreed) {
  auto alive = std::make_shared<int>(0);
  {
    Loop never(options_of(GetParam()));
    never.post([alive] { ADD_FAILURE(); });
    EXPECT_EQ(alive.use_count(), 2);
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_P(LoopTest, ResumeSoonComesInTheNextBatchAndCanBeTakenBack) {
  struct Yield {
    Loop& loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) const { loop.resume_soon(self); }
    void await_resume() const noexcept {}
  };
  struct Later {
    Loop& loop;
    std::coroutine_handle<> waiting = nullptr;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) {
      waiting = self;
      loop.resume_soon(self);
    }
    void await_resume() const noexcept {}
    ~Later() { loop.forget(waiting); }
  };
  std::vector<int> order;
  loop.run([](Loop& self, std::vector<int>& log) -> Task<void> {
    const auto turns = [](Loop& on, std::vector<int>& out, int id) -> Task<void> {
      for (int i = 0; i < 3; ++i) {
        out.push_back(id);
        co_await Yield{on};
      }
    };
    Scope scope;
    scope.spawn(turns(self, log, 1));
    scope.spawn(turns(self, log, 2));
    co_await scope.join();

    // This coroutine drops one that follows it in the same batch.
    Scope dropped;
    Yield yield{self};
    bool resumed = false;
    const auto victim = [](Loop& on, bool& flag) -> Task<void> {
      co_await Later{on};
      flag = true;
    };
    Scope killers;
    killers.spawn([](Loop& on, Scope& victims) -> Task<void> {
      co_await Yield{on};
      victims.clear();
    }(self, dropped));
    dropped.spawn(victim(self, resumed));
    co_await yield;
    co_await yield;
    EXPECT_FALSE(resumed);
    co_await killers.join();
  }(loop, order));
  EXPECT_EQ(order, (std::vector{1, 2, 1, 2, 1, 2}));
}

TEST_P(LoopTest, TheEndOfATickComesOnceForMany) {
  struct End final : TickEnd {
    void on_tick_end() override { ++calls; }
    int calls = 0;
  } end;
  End removed;
  loop.run([](Loop& self, End& counted, End& other) -> Task<void> {
    for (int i = 0; i < 5; ++i) self.at_tick_end(counted);
    self.at_tick_end(other);
    self.remove_tick_end(other);
    EXPECT_EQ(counted.calls, 0);
    co_await self.sleep(milliseconds(1));
    EXPECT_EQ(counted.calls, 1);
    self.at_tick_end(counted);
  }(loop, end, removed));
  EXPECT_EQ(end.calls, 2) << "what the last tick produced is sent before run() returns";
  EXPECT_EQ(removed.calls, 0);
}

// A flush within a flush begins at the front of the list. An end that has run may be destroyed already.
TEST_P(LoopTest, AFlushWithinAFlushFindsNoEndThatHasGone) {
  struct End final : TickEnd {
    explicit End(std::function<void()> runs) : work(std::move(runs)) {}
    void on_tick_end() override { work(); }
    std::function<void()> work;
  };
  int later = 0;
  auto first = std::make_unique<End>([] {});
  End nested([&] {
    first.reset();
    loop.stop();
    loop.run();  // Ends at once, after a flush.
  });
  End last([&] { ++later; });
  loop.at_tick_end(*first);
  loop.at_tick_end(nested);
  loop.at_tick_end(last);
  loop.run([](Loop& self) -> Task<void> { co_await self.sleep(milliseconds(1)); }(loop));
  EXPECT_EQ(later, 1);
}

// An end that requests another turn while it runs gets it in the same flush.
TEST_P(LoopTest, AnEndMayRegisterItselfAgainWhileItRuns) {
  struct End final : TickEnd {
    explicit End(Loop& on) : loop(on) {}
    void on_tick_end() override {
      if (++calls < 3) loop.at_tick_end(*this);
    }
    Loop& loop;
    int calls = 0;
  } end(loop);
  loop.run([](Loop& self, End& again) -> Task<void> {
    self.at_tick_end(again);
    co_await self.sleep(milliseconds(1));
    EXPECT_EQ(again.calls, 3);
  }(loop, end));
}

// Ends that are requested during a flush run in the same tick. An end may be destroyed within its own call.
TEST_P(LoopTest, AnEndOfATickThatIsAskedForMeanwhileIsNotLost) {
  struct Again final : TickEnd {
    explicit Again(Loop& on) : loop(on) {}
    void on_tick_end() override {
      if (++calls < 3) loop.at_tick_end(*this);
    }
    Loop& loop;
    int calls = 0;
  };
  struct Maker final : TickEnd {
    void on_tick_end() override {
      // Many ends are added while the list is traversed.
      for (int i = 0; i < 100; ++i) {
        made.push_back(std::make_unique<Again>(*loop));
        loop->at_tick_end(*made.back());
      }
      loop->at_tick_end(*gone);
      loop->remove_tick_end(*gone);
      gone.reset();
    }
    Loop* loop = nullptr;
    std::unique_ptr<Again> gone;
    std::vector<std::unique_ptr<Again>> made;
  } maker;
  Again again(loop);
  maker.loop = &loop;
  maker.gone = std::make_unique<Again>(loop);
  loop.run([](Loop& self, Again& first, Maker& second) -> Task<void> {
    self.at_tick_end(first);
    self.at_tick_end(second);
    co_await self.sleep(milliseconds(1));
    EXPECT_EQ(first.calls, 3);
    EXPECT_EQ(second.made.size(), 100U);
    for (const auto& one : second.made) EXPECT_EQ(one->calls, 3);
  }(loop, again, maker));
}

// A source that cannot be armed has work: the loop must poll it instead of sleeping, in every way of waiting.
TEST_P(LoopTest, ASourceThatCannotBeArmedIsPolled) {
  struct Busy final : Source {
    bool poll() override {
      if (work == 0) return false;
      if (--work == 0) done->stop();
      return true;
    }
    bool arm() override { return work == 0; }
    int work = 100;
    Loop* done = nullptr;
  } source;
  source.done = &loop;
  loop.add_source(source);
  EXPECT_EQ(loop.sources(), 1U);
  loop.run();
  loop.remove_source(source);
  EXPECT_EQ(source.work, 0);
  EXPECT_EQ(loop.sources(), 0U);
}

struct EventWatcher final : Watcher {
  explicit EventWatcher(Loop& on) : loop(on), fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EventWatcher() { close(fd); }
  void on_ready(Readiness readiness) override {
    if (!readiness.readable) return;
    eventfd_t count = 0;
    if (eventfd_read(fd, &count) != 0) return;
    seen += count;
    notified_at = loop.now();
    loop.stop();
  }
  Loop& loop;
  int fd;
  eventfd_t seen = 0;
  Time notified_at{};
};

// Thousands of connections with data to read must not keep a quiet connection, or the listener, waiting.
TEST_P(LoopTest, ManyBusySourcesLeaveThePollerItsTurn) {
  struct Busy final : Source {
    bool poll() override {
      ++polls;
      if (polls == 50) loop->stop();
      return true;
    }
    Loop* loop = nullptr;
    int polls = 0;
  };
  EventWatcher watcher(loop);
  loop.poller().watch(watcher.fd, watcher);
  std::vector<Busy> sources(1000);
  for (Busy& source : sources) {
    source.loop = &loop;
    loop.add_source(source);
  }
  eventfd_write(watcher.fd, 1);
  loop.run();
  EXPECT_EQ(watcher.seen, 1U);
  EXPECT_LE(sources.back().polls, 2) << "rounds of a thousand";
  for (Busy& source : sources) loop.remove_source(source);
  loop.poller().unwatch(watcher.fd, watcher);
}

// A deadline that is computed from a stale time would pass before its call has begun.
TEST_P(LoopTest, WhatIsDeliveredAfterASleepKnowsTheTime) {
  EventWatcher watcher(loop);
  loop.poller().watch(watcher.fd, watcher);
  const Time before = loop.poller().now();
  std::thread writer([&] {
    std::this_thread::sleep_for(milliseconds(30));
    eventfd_write(watcher.fd, 1);
  });
  loop.run();
  writer.join();
  EXPECT_GE(watcher.notified_at - before, milliseconds(29));
  loop.poller().unwatch(watcher.fd, watcher);
}

TEST_P(LoopTest, EveryEdgeIsDelivered) {
  EventWatcher watcher(loop);
  loop.poller().watch(watcher.fd, watcher);
  for (eventfd_t i = 1; i <= 50; ++i) {
    eventfd_write(watcher.fd, 1);
    while (watcher.seen < i) loop.run();
  }
  EXPECT_EQ(watcher.seen, 50U);
  loop.poller().unwatch(watcher.fd, watcher);
}

TEST_P(LoopTest, NothingIsDeliveredAfterUnwatch) {
  // Both descriptors are ready at once. The watcher that is notified first unwatches the other.
  struct Rival final : Watcher {
    void on_ready(Readiness) override {
      ++notified;
      loop->poller().unwatch(other->fd, *other);
      other->fd = -1;
    }
    Loop* loop = nullptr;
    Rival* other = nullptr;
    int fd = -1;
    int notified = 0;
  };
  std::array<Rival, 2> rivals;
  std::array<int, 2> fds{};
  for (std::size_t i = 0; i < 2; ++i) {
    rivals[i].loop = &loop;
    rivals[i].other = &rivals[1 - i];
    fds[i] = rivals[i].fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    loop.poller().watch(fds[i], rivals[i]);
  }
  loop.run([](Loop& self) -> Task<void> { co_await self.sleep(milliseconds(2)); }(loop));
  EXPECT_GE(std::max(rivals[0].notified, rivals[1].notified), 1);
  EXPECT_EQ(std::min(rivals[0].notified, rivals[1].notified), 0);
  for (std::size_t i = 0; i < 2; ++i) {
    if (rivals[i].fd >= 0) loop.poller().unwatch(fds[i], rivals[i]);
    close(fds[i]);
  }
}

// The number of a closed descriptor is reused at once: the new watcher must not get the old one's events.
TEST_P(LoopTest, ADescriptorsNumberMayBeUsedAgain) {
  for (int round = 0; round < 20; ++round) {
    {
      EventWatcher old(loop);
      loop.poller().watch(old.fd, old);
      eventfd_write(old.fd, 1);
      loop.poller().unwatch(old.fd, old);
    }
    EventWatcher fresh(loop);
    loop.poller().watch(fresh.fd, fresh);
    eventfd_write(fresh.fd, 5);
    while (fresh.seen == 0) loop.run();
    EXPECT_EQ(fresh.seen, 5U);
    loop.poller().unwatch(fresh.fd, fresh);
  }
}

TEST_P(LoopTest, AHangUpIsToldAsReadable) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  struct Hangup final : Watcher {
    void on_ready(Readiness readiness) override {
      writable |= readiness.writable;
      if (!readiness.hangup) return;
      EXPECT_TRUE(readiness.readable);
      loop->stop();
    }
    Loop* loop = nullptr;
    bool writable = false;
  } watcher;
  watcher.loop = &loop;
  loop.poller().watch(ends[0], watcher);
  close(ends[1]);
  loop.run();
  EXPECT_TRUE(watcher.writable);
  loop.poller().unwatch(ends[0], watcher);
  close(ends[0]);
}

TEST(LoopDeathTest, ALoopThatRunsIsNotRunAgain) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto nothing = []() -> Task<void> { co_await Loop::current()->sleep(std::chrono::milliseconds(1)); };
  EXPECT_DEATH(
      {
        Loop loop;
        loop.run([](Loop& self, auto& inner) -> Task<void> {
          co_await self.sleep(std::chrono::milliseconds(1));
          self.run(inner());
          co_return;
        }(loop, nothing));
      },
      "called from within a task of the same loop");
  EXPECT_DEATH(
      {
        Loop loop;
        loop.run([](Loop& self, auto& inner) -> Task<void> {
          std::thread([&] { self.run(inner()); }).join();
          co_return;
        }(loop, nothing));
      },
      "called while another thread runs the loop");
}

TEST(LoopDeathTest, ALoopThatRunsIsNotDestroyed) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const char* const text = "a Loop or an EmbeddedLoop was destroyed while it runs";
  EXPECT_DEATH(
      {
        auto loop = std::make_unique<Loop>();
        loop->run([](std::unique_ptr<Loop>& own) -> Task<void> {
          own.reset();
          co_return;
        }(loop));
      },
      text);
  EXPECT_DEATH(
      {
        auto loop = std::make_unique<Loop>();
        loop->run([](std::unique_ptr<Loop>& own) -> Task<void> {
          std::thread([&] { own.reset(); }).join();
          co_return;
        }(loop));
      },
      text);
  EXPECT_DEATH(
      {
        auto embedded = std::make_unique<EmbeddedLoop>();
        embedded->loop().post([&] { embedded.reset(); });
        embedded->poll_once();
      },
      text);
}

// exit() destroys static objects within the task.
TEST(LoopDeathTest, ATaskOfAStaticLoopMayEndTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto run = [] {
    static Loop loop({.blocked_max = forever});  // A slow machine is not a reason for text.
    loop.run([]() -> Task<void> {
      co_await Loop::current()->sleep(std::chrono::milliseconds(1));
      std::exit(3);
    }());
  };
  const auto ended_quietly = testing::Not(testing::HasSubstr("was destroyed"));
  EXPECT_EXIT(run(), testing::ExitedWithCode(3), ended_quietly);
  const auto run_behind_another = [&] {
    Loop().run([]() -> Task<void> { co_return; }());
    run();
  };
  EXPECT_EXIT(run_behind_another(), testing::ExitedWithCode(3), ended_quietly);
}

}  // namespace
}  // namespace hawser::exec
