#include "exec/timer_wheel.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace hawser {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::seconds;

constexpr Duration tick{std::int64_t{1} << TimerWheel::tick_shift};
constexpr Time origin{seconds(1000)};

struct TestTimer : Timer {
  explicit TestTimer(std::function<void()> on_fire = {}) : Timer(&TestTimer::fire), action(std::move(on_fire)) {}
  static void fire(Timer& timer) noexcept {
    TestTimer& self = static_cast<TestTimer&>(timer);
    ++self.fired;
    if (self.action) self.action();
  }
  std::function<void()> action;
  int fired = 0;
};

TEST(TimerWheel, EmptyHasNothingDue) {
  TimerWheel wheel(origin);
  EXPECT_TRUE(wheel.empty());
  EXPECT_FALSE(wheel.next());
  EXPECT_EQ(wheel.advance(origin + hours(1)), 0U);
}

TEST(TimerWheel, FiresOnceAndNotEarly) {
  TimerWheel wheel(origin);
  TestTimer timer;
  wheel.start(timer, origin + microseconds(100));
  EXPECT_TRUE(timer.running());
  EXPECT_EQ(wheel.advance(origin + microseconds(99)), 0U);
  EXPECT_EQ(wheel.advance(origin + microseconds(100) + tick), 1U);
  EXPECT_FALSE(timer.running());
  EXPECT_EQ(wheel.advance(origin + hours(1)), 0U);
  EXPECT_EQ(timer.fired, 1);
}

// A loop sleeps until next(): it wakes once for a timer, however far away that is.
TEST(TimerWheel, NextIsTheEarliestTimer) {
  TimerWheel wheel(origin);
  std::vector<std::unique_ptr<TestTimer>> timers;
  for (unsigned i = 0; i < TimerWheel::next_scan_max; ++i) {
    timers.push_back(std::make_unique<TestTimer>());
    wheel.start(*timers.back(), origin + seconds(3600 - i));
    EXPECT_GE(*wheel.next(), origin + seconds(3600 - i));
    EXPECT_LE(*wheel.next(), origin + seconds(3600 - i) + tick);
  }
  TestTimer further;
  wheel.start(further, origin + seconds(3600));
  EXPECT_GE(*wheel.next(), origin + seconds(3600 - TimerWheel::next_scan_max + 1));
  EXPECT_LE(*wheel.next(), origin + seconds(3600 - TimerWheel::next_scan_max + 1) + tick) << "it was known before";
  wheel.start(further, origin + seconds(3600));  // Stops it first, so that the wheel looks for the next one.
  EXPECT_LE(*wheel.next(), origin + seconds(3600 - TimerWheel::next_scan_max + 1)) << "never later than a timer";
}

TEST(TimerWheel, NextFollowsTimersThatStartAndStop) {
  TimerWheel wheel(origin);
  TestTimer later;
  TestTimer sooner;
  wheel.start(later, origin + seconds(100));
  EXPECT_GE(*wheel.next(), origin + seconds(100));
  wheel.start(sooner, origin + seconds(50));
  EXPECT_LE(*wheel.next(), origin + seconds(50) + tick);
  sooner.stop();
  EXPECT_GE(*wheel.next(), origin + seconds(100));
  wheel.start(later, origin + seconds(200));
  EXPECT_GE(*wheel.next(), origin + seconds(200));
  EXPECT_LE(*wheel.next(), origin + seconds(200) + tick);
  EXPECT_EQ(wheel.advance(origin + seconds(201)), 1U);
  EXPECT_FALSE(wheel.next());
}

TEST(TimerWheel, ThePastFiresAtTheNextTick) {
  TimerWheel wheel(origin);
  wheel.advance(origin + seconds(1));
  TestTimer timer;
  wheel.start(timer, origin - seconds(5));
  EXPECT_EQ(timer.fired, 0);
  EXPECT_EQ(wheel.advance(origin + seconds(1) + tick), 1U);
}

TEST(TimerWheel, StartAgainMovesATimer) {
  TimerWheel wheel(origin);
  TestTimer timer;
  wheel.start(timer, origin + microseconds(50));
  wheel.start(timer, origin + seconds(10));
  EXPECT_EQ(wheel.advance(origin + seconds(9)), 0U);
  EXPECT_EQ(wheel.advance(origin + seconds(10) + tick), 1U);
}

TEST(TimerWheel, DestroyingATimerStopsIt) {
  TimerWheel wheel(origin);
  auto timer = std::make_unique<TestTimer>();
  wheel.start(*timer, origin + microseconds(50));
  timer.reset();
  EXPECT_TRUE(wheel.empty());
  EXPECT_FALSE(wheel.next());
  EXPECT_EQ(wheel.advance(origin + seconds(1)), 0U);
}

TEST(TimerWheel, DestroyingTheWheelLeavesTimersStopped) {
  TestTimer timer;
  {
    TimerWheel wheel(origin);
    wheel.start(timer, origin + seconds(1));
  }
  EXPECT_FALSE(timer.running());
}

// The test starts one timer for each digit of each level and advances from next() to next(), like the loop.
TEST(TimerWheel, EveryLevelIsPunctual) {
  for (unsigned level = 0; level < TimerWheel::levels; ++level) {
    for (const unsigned digit : {1U, 31U, 63U}) {
      TimerWheel wheel(origin);
      TestTimer timer;
      const std::int64_t ticks = (std::int64_t{digit} << (level * TimerWheel::slot_bits)) + 7;
      const Time when = origin + tick * ticks;
      wheel.start(timer, when);
      Time now = origin;
      for (unsigned steps = 0; timer.fired == 0; ++steps) {
        ASSERT_LE(steps, TimerWheel::levels) << "level " << level << " digit " << digit;
        const std::optional<Time> next = wheel.next();
        ASSERT_TRUE(next);
        ASSERT_GT(*next, now);
        now = *next;
        wheel.advance(now);
      }
      EXPECT_EQ(now, when) << "level " << level << " digit " << digit;
    }
  }
}

TEST(TimerWheel, TheEndOfTimeIsFarAway) {
  TimerWheel wheel(origin);
  TestTimer timer;
  wheel.start(timer, Time::max());
  EXPECT_EQ(wheel.advance(origin + hours(24 * 365 * 50)), 0U);
  EXPECT_TRUE(timer.running());
}

TEST(TimerWheel, ACallbackMayStopOthersOfTheSameSlot) {
  TimerWheel wheel(origin);
  std::vector<std::unique_ptr<TestTimer>> timers;
  int fired = 0;
  for (int i = 0; i < 5; ++i) {
    timers.push_back(std::make_unique<TestTimer>([&] {
      ++fired;
      for (auto& other : timers) other->stop();
    }));
  }
  for (auto& timer : timers) wheel.start(*timer, origin + tick * 3);
  EXPECT_EQ(wheel.advance(origin + seconds(1)), 1U);
  EXPECT_EQ(fired, 1);
  EXPECT_TRUE(wheel.empty());
}

TEST(TimerWheel, ACallbackMayDestroyItself) {
  TimerWheel wheel(origin);
  struct SelfDestroying : Timer {
    SelfDestroying() : Timer([](Timer& timer) noexcept { delete static_cast<SelfDestroying*>(&timer); }) {}
  };
  wheel.start(*new SelfDestroying, origin + tick);
  EXPECT_EQ(wheel.advance(origin + seconds(1)), 1U);
  EXPECT_TRUE(wheel.empty());
}

// A timer that a callback starts for the present time must not fire within the same tick of the wheel; otherwise the
// loop never continues.
TEST(TimerWheel, ACallbackThatStartsItselfDoesNotHoldTheWheel) {
  TimerWheel wheel(origin);
  TestTimer timer;
  timer.action = [&] { wheel.start(timer, origin); };
  wheel.start(timer, origin);
  EXPECT_EQ(wheel.advance(origin + tick * 10), 10U);
}

// Compares the wheel with a sorted map, over random starts, stops, restarts from callbacks, and time steps of every
// size.
class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      timers_[i] = std::make_unique<TestTimer>([this, i] { on_fire(i); });
    }
  }

  void step() {
    const std::size_t index = pick(timers_.size());
    switch (pick(4)) {
      case 0:
      case 1: start(index); break;
      case 2: stop(index); break;
      case 3: advance(); break;
    }
  }

 private:
  std::size_t pick(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }
  // Returns a duration of any magnitude, from nothing to some years.
  Duration any_duration() { return Duration(static_cast<std::int64_t>(random_() >> (8 + pick(56)))); }

  void start(std::size_t index) {
    const Time when = now_ + any_duration();
    wheel_.start(*timers_[index], when);
    expected_[index] = when;
  }
  void stop(std::size_t index) {
    timers_[index]->stop();
    expected_.erase(index);
  }
  void on_fire(std::size_t index) {
    const auto found = expected_.find(index);
    ASSERT_NE(found, expected_.end()) << "a stopped timer fired";
    EXPECT_LE(found->second, target_) << "a timer fired early";
    expected_.erase(found);
    // A callback changes other timers, also those that are due in the same tick.
    if (pick(3) == 0) stop(pick(timers_.size()));
    if (pick(3) == 0) start(pick(timers_.size()));
  }
  void advance() {
    // Like the loop, the model sleeps until next() at most, or is woken earlier. Sometimes it wakes up much too late.
    const std::optional<Time> next = wheel_.next();
    EXPECT_EQ(next.has_value(), !expected_.empty());
    for (const auto& [index, when] : expected_) {
      ASSERT_LE(*next, std::max(when, now_) + tick) << "next() would let the loop oversleep timer " << index;
    }
    target_ = now_ + any_duration() / (std::int64_t{1} << pick(30));
    if (next && pick(2) == 0) target_ = std::max(target_, *next);
    wheel_.advance(target_);
    now_ = target_;
    for (const auto& [index, when] : expected_) {
      EXPECT_TRUE(timers_[index]->running());
      // Timers that callbacks started meanwhile may be due already; they fire at the next tick.
      if (when < now_ - tick) late_.push_back(index);
    }
    if (late_.empty()) return;
    target_ = now_ += tick;
    wheel_.advance(now_);
    for (const std::size_t index : late_) {
      const auto found = expected_.find(index);
      EXPECT_TRUE(found == expected_.end() || found->second >= now_ - tick * 2) << "a timer is late";
    }
    late_.clear();
  }

  std::mt19937_64 random_;
  TimerWheel wheel_{origin};
  Time now_ = origin;
  Time target_ = origin;
  std::array<std::unique_ptr<TestTimer>, 60> timers_;
  std::map<std::size_t, Time> expected_;
  std::vector<std::size_t> late_;
};

TEST(TimerWheel, AgreesWithASortedMap) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) model.step();
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace hawser
