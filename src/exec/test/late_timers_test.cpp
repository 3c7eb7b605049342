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

// A poll delivers at most 256 events.
TEST_P(LateTimersTest, WhatArrivedBeforeATimerIsDeliveredBeforeIt) {
  struct Arrival final : Watcher {
    explicit Arrival(unsigned& all) : fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), delivered(all) {}
    ~Arrival() { close(fd); }
    void on_ready(Readiness readiness) override { delivered += readiness.readable ? 1 : 0; }
    const int fd;
    unsigned& delivered;
  };
  constexpr unsigned count = 600;
  unsigned delivered = 0;
  unsigned delivered_before = 0;
  std::vector<std::unique_ptr<Arrival>> arrivals;
  loop.run([](Loop& self, auto& all, unsigned& seen, unsigned& before) -> Task<void> {
    for (unsigned i = 0; i < count; ++i) {
      all.push_back(std::make_unique<Arrival>(seen));
      self.poller().watch(all.back()->fd, *all.back());
    }
    co_await self.sleep(milliseconds(1));  // The first edges are delivered: the descriptors may be written.
    EXPECT_EQ(seen, 0U);
    for (const auto& arrival : all) eventfd_write(arrival->fd, 1);
    const auto wake_up = [](Loop& its, const unsigned& now_seen, unsigned& at_wake_up) -> Task<void> {
      co_await its.sleep(milliseconds(20));
      at_wake_up = now_seen;
    };
    Scope scope;
    scope.spawn(wake_up(self, seen, before));
    co_await self.sleep(Duration::zero());  // The sleeper sleeps.
    std::this_thread::sleep_for(milliseconds(60));
    co_await scope.join();
  }(loop, arrivals, delivered, delivered_before));
  EXPECT_EQ(delivered_before, count);
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

TEST(LateTimers, AQuietPollReleasesThem) {
  const Time due{seconds(1)};
  LateTimers timers;
  EXPECT_FALSE(timers.hold(due, due + LateTimers::late_min - Duration(1)));
  EXPECT_TRUE(timers.hold(due, due + LateTimers::late_min));
  timers.polled(false);
  EXPECT_TRUE(timers.hold(due, due + LateTimers::late_min + milliseconds(9)));
  timers.polled(true);
  EXPECT_FALSE(timers.hold(due, due + LateTimers::late_min + milliseconds(9)));
  timers.polled(false);
  EXPECT_TRUE(timers.hold(due, due + seconds(5))) << "each hold has its own end";
  EXPECT_TRUE(timers.hold(due, due + seconds(9)));
  EXPECT_FALSE(timers.hold(due, due + seconds(10)));
}

}  // namespace
}  // namespace hawser::exec
