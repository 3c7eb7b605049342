#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <type_traits>

#include "exec/timer_wheel.h"
#include "hawser/timer.h"

namespace hawser {
namespace {

using std::chrono::seconds;

constexpr Duration member_tick{std::int64_t{1} << TimerWheel::tick_shift};
constexpr Time member_origin{seconds(1000)};

class TimerOwner {
 public:
  explicit TimerOwner(TimerWheel& wheel) noexcept : wheel_(wheel) {}
  void start(Time when) noexcept { wheel_.start(timer_, when); }
  void start_now() noexcept { start(member_origin); }
  int fired() const noexcept { return fired_; }
  bool running() const noexcept { return timer_.running(); }
  int rounds = 1;  // The function starts the timer until it has run so often.

 private:
  void on_time() noexcept {
    if (++fired_ < rounds) wheel_.start(timer_, member_origin);
  }

  TimerWheel& wheel_;
  int fired_ = 0;
  MemberTimer<&TimerOwner::on_time> timer_{*this};
};

static_assert(!std::is_copy_constructible_v<TimerOwner> && !std::is_move_constructible_v<TimerOwner>,
              "the wheel has the address of the timer, and the timer that of its owner");
static_assert(sizeof(MemberTimer<&TimerOwner::start_now>) == sizeof(Timer) + sizeof(TimerOwner*),
              "the function and its arguments take no space");

TEST(MemberTimer, CallsThePrivateFunctionOfItsOwnerOnce) {
  TimerWheel wheel(member_origin);
  TimerOwner owner(wheel);
  owner.start(member_origin + member_tick);
  EXPECT_TRUE(owner.running());
  EXPECT_EQ(owner.fired(), 0);
  EXPECT_EQ(wheel.advance(member_origin + seconds(1)), 1U);
  EXPECT_EQ(owner.fired(), 1);
  EXPECT_FALSE(owner.running());
  EXPECT_TRUE(wheel.empty());
}

TEST(MemberTimer, DoesNotFireAfterItsOwnerIsDestroyed) {
  TimerWheel wheel(member_origin);
  std::optional<TimerOwner> owner(std::in_place, wheel);
  owner->start(member_origin + member_tick);
  owner.reset();
  EXPECT_TRUE(wheel.empty());
  EXPECT_EQ(wheel.advance(member_origin + seconds(1)), 0U);
}

TEST(MemberTimer, TheFunctionMayStartTheTimerAgain) {
  TimerWheel wheel(member_origin);
  TimerOwner owner(wheel);
  owner.rounds = 3;
  owner.start(member_origin);
  EXPECT_EQ(wheel.advance(member_origin + member_tick * 10), 3U);
  EXPECT_EQ(owner.fired(), 3);
  EXPECT_TRUE(wheel.empty());
}

TEST(MemberTimer, TheFunctionMayDestroyTheOwner) {
  struct Ending {
    void end() { self.reset(); }
    std::unique_ptr<Ending>& self;
    MemberTimer<&Ending::end> timer{*this};
  };
  TimerWheel wheel(member_origin);
  std::unique_ptr<Ending> ending;
  ending.reset(new Ending{ending});
  wheel.start(ending->timer, member_origin + member_tick);
  EXPECT_EQ(wheel.advance(member_origin + seconds(1)), 1U);
  EXPECT_EQ(ending, nullptr);
  EXPECT_TRUE(wheel.empty());
}

TEST(MemberTimer, TheTimersOfOneOwnerPassTheirOwnArguments) {
  struct Counter {
    bool add(int first, int second) {
      sum += first * second;
      return true;
    }
    int sum = 0;
    MemberTimer<&Counter::add, 3, 5> small{*this};
    MemberTimer<&Counter::add, 100, 2> large{*this};
  };
  TimerWheel wheel(member_origin);
  Counter counter;
  wheel.start(counter.small, member_origin + member_tick);
  wheel.start(counter.large, member_origin + seconds(2));
  EXPECT_EQ(wheel.advance(member_origin + seconds(1)), 1U);
  EXPECT_EQ(counter.sum, 15);
  EXPECT_EQ(wheel.advance(member_origin + seconds(3)), 1U);
  EXPECT_EQ(counter.sum, 215);
}

}  // namespace
}  // namespace hawser
