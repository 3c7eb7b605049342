#include "exec/late_timers.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "exec/test/loop_testing.h"

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LateTimersTest : public LoopTest {};

INSTANTIATE_TEST_SUITE_P(Kinds, LateTimersTest, every_loop(), name_of);

// How often a descriptor became readable.
struct Arrival final : Watcher {
  explicit Arrival(unsigned& all) : fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), delivered(all) {}
  ~Arrival() { close(fd); }
  void on_ready(Readiness readiness) override { delivered += readiness.readable ? 1 : 0; }
  const int fd;
  unsigned& delivered;
};

constexpr Duration late_timer_delay = milliseconds(20);

// The state at the time at which a late timer fired.
struct LateWakeUp {
  unsigned delivered = 0;
  bool in_time = false;  // The timer was not held as long again as it was late.
};

// All descriptors become readable, and a timer passes while the loop is blocked for that time.
Task<LateWakeUp> wake_up_after(Loop& loop, const std::vector<std::unique_ptr<Arrival>>& arrivals,
                               const unsigned& delivered, Duration blocked) {
  const unsigned before = delivered;
  Time fired{};
  LateWakeUp result;
  for (const auto& arrival : arrivals) eventfd_write(arrival->fd, 1);
  const auto wake_up = [](Loop& its, const unsigned& seen, LateWakeUp& wake, Time& at) -> Task<void> {
    co_await its.sleep(late_timer_delay);
    wake.delivered = seen;
    at = its.poller().now();
  };
  Scope scope;
  scope.spawn(wake_up(loop, delivered, result, fired));
  co_await loop.sleep(Duration::zero());  // The sleeper sleeps.
  const Time due_max = loop.poller().now() + late_timer_delay + milliseconds(1);
  std::this_thread::sleep_for(blocked);
  const Time blocked_end = loop.poller().now();
  co_await scope.join();
  result.delivered -= before;
  result.in_time = fired - blocked_end < blocked_end - due_max;
  co_return result;
}

// A poll delivers at most 256 events. A machine that stops the loop again while it polls may take longer than a timer
// is held: the next round blocks for twice the time.
TEST_P(LateTimersTest, WhatArrivedBeforeATimerIsDeliveredBeforeIt) {
  constexpr unsigned count = 600;
  unsigned delivered = 0;
  std::vector<std::unique_ptr<Arrival>> arrivals;
  const unsigned before_timer = loop.run([](Loop& self, auto& all, unsigned& seen) -> Task<unsigned> {
    for (unsigned i = 0; i < count; ++i) {
      all.push_back(std::make_unique<Arrival>(seen));
      self.poller().watch(all.back()->fd, *all.back());
    }
    co_await self.sleep(milliseconds(1));  // The first edges are delivered: the descriptors may be written.
    EXPECT_EQ(seen, 0U);
    for (Duration blocked = milliseconds(60);; blocked *= 2) {
      const unsigned round_begin = seen;
      const LateWakeUp wake = co_await wake_up_after(self, all, seen, blocked);
      if (wake.in_time) co_return wake.delivered;
      while (seen != round_begin + count) co_await self.sleep(milliseconds(1));
    }
  }(loop, arrivals, delivered));
  EXPECT_EQ(before_timer, count);
  for (const auto& arrival : arrivals) loop.poller().unwatch(arrival->fd, *arrival);
}

// A clock that a test sets, and a poll that calls what a test gives.
class ScriptedPoller final : public Poller {
 public:
  using Poll = std::function<bool(Time& now)>;
  explicit ScriptedPoller(Poll poll) : poll_(std::move(poll)) {}
  std::string_view name() const noexcept override { return "scripted"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration timeout, Time& now) override {
    const Time before = now_;
    const bool found = poll_(now_);
    if (!found && now_ == before && timeout != forever) now_ += timeout;
    now = now_;
    return found ? 1 : 0;
  }
  void wake() noexcept override {}
  void watch(int, Watcher&) override {}
  void unwatch(int, Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }

 private:
  Poll poll_;
  Time now_{seconds(1)};
};

// Runs a loop in which each poll finds something and takes `poll_time`. Returns by how much a sleep of 1 ms is late.
Duration lateness_with_polls_of(Duration poll_time) {
  const auto poll = [poll_time](Time& now) {
    now += poll_time;
    return true;
  };
  Loop loop(std::make_unique<ScriptedPoller>(poll), {.log = no_log()});
  return loop.run([](Loop& self) -> Task<Duration> {
    const Time due = self.now() + milliseconds(1);
    co_await self.sleep(milliseconds(1));
    co_return self.now() - due;
  }(loop));
}

TEST(LateTimers, ATimerThatIsNotLateDoesNotWait) {
  EXPECT_LE(lateness_with_polls_of(milliseconds(8)), milliseconds(8));
}

TEST(LateTimers, ALoopThatAlwaysFindsSomethingHoldsThemAsLongAgain) {
  const Duration once = lateness_with_polls_of(milliseconds(50));
  EXPECT_GE(once, milliseconds(98));
  EXPECT_LE(once, milliseconds(150));
}

// A poller that makes the steps of a test, one a poll, and then fires the timers. `delivered`: a step returned true.
struct ScriptedInput {
  Task<void> sleeper(Loop& loop) {
    co_await loop.sleep(milliseconds(1));
    delivered_before_timer = delivered;
    over = true;
    loop.stop();
  }
  std::vector<ScriptedPoller::Poll> steps;
  std::size_t step = 0;
  bool delivered = false;
  bool delivered_before_timer = false;
  bool over = false;
};

bool stopped_by_machine(Time& now) {
  now += milliseconds(50);
  return false;
}

bool input(Time&) { return true; }

// Runs a loop whose polls are the steps, until a sleep of 1 ms is over. Returns true if input was delivered before.
bool input_before_timer(const std::function<std::vector<ScriptedPoller::Poll>(Loop*& loop)>& make_steps) {
  Loop* running = nullptr;
  ScriptedInput script{.steps = make_steps(running)};
  const auto poll = [&script](Time& now) {
    const bool found = script.step < script.steps.size() && script.steps[script.step](now);
    ++script.step;
    script.delivered |= found;
    return found;
  };
  Loop loop(std::make_unique<ScriptedPoller>(poll), {.log = no_log()});
  running = &loop;
  Scope scope;
  loop.post([&] { scope.spawn(script.sleeper(loop)); });
  while (!script.over) loop.run();
  return script.delivered_before_timer;
}

// The poller has asked the kernel when the machine stops the process, and reads the clock when it goes on.
TEST(LateTimers, APollThatBeganBeforeTheyWereLateReleasesNone) {
  EXPECT_TRUE(input_before_timer([](Loop*&) { return std::vector<ScriptedPoller::Poll>{stopped_by_machine, input}; }));
}

TEST(LateTimers, ThePollOfAnEarlierRunReleasesNone) {
  EXPECT_TRUE(input_before_timer([](Loop*& loop) {
    const auto end_of_run = [&loop](Time&) {
      loop->stop();
      return false;
    };
    return std::vector<ScriptedPoller::Poll>{stopped_by_machine, end_of_run, input};
  }));
}

TEST(LateTimers, AQuietPollReleasesThem) {
  const Time due{seconds(1)};
  LateTimers timers;
  EXPECT_FALSE(timers.hold(due, due + LateTimers::late_min - Duration(1)));
  EXPECT_TRUE(timers.hold(due, due + LateTimers::late_min));
  timers.polled(false);
  EXPECT_TRUE(timers.hold(due, due + LateTimers::late_min + milliseconds(9)));
  timers.polled(true);
  EXPECT_FALSE(timers.hold(due, due + LateTimers::late_min + milliseconds(9)));
  EXPECT_TRUE(timers.hold(due, due + seconds(5))) << "each hold has its own end, and needs its own poll";
  EXPECT_TRUE(timers.hold(due, due + seconds(9)));
  EXPECT_FALSE(timers.hold(due, due + seconds(10)));
}

// Input that arrived stopped the first one. The loop has polled since then, and was never quiet.
TEST(LateTimers, ATimerThatWasHeldAndStoppedHoldsNoOther) {
  const Time due{seconds(1)};
  LateTimers timers;
  EXPECT_TRUE(timers.hold(due, due + seconds(5)));
  timers.polled(false);
  EXPECT_FALSE(timers.hold(due + seconds(6), due + seconds(6)));
  timers.polled(false);
  EXPECT_TRUE(timers.hold(due + seconds(7), due + seconds(7) + milliseconds(20)));
  EXPECT_TRUE(timers.hold(due + seconds(7), due + seconds(7) + milliseconds(39)));
  EXPECT_FALSE(timers.hold(due + seconds(7), due + seconds(7) + milliseconds(40)));
  // Another late one is the earliest one now. It is not held longer than the first one would have been.
  EXPECT_TRUE(timers.hold(due + seconds(8), due + seconds(8) + milliseconds(20)));
  EXPECT_TRUE(timers.hold(due + seconds(8) + milliseconds(10), due + seconds(8) + milliseconds(30)));
  EXPECT_FALSE(timers.hold(due + seconds(8) + milliseconds(10), due + seconds(8) + milliseconds(40)));
}

}  // namespace
}  // namespace hawser::exec
