#include "exec/sim_poller.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "hawser/detail/loop_access.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser::exec {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class SimLoop : public testing::TestWithParam<Wait> {
 protected:
  Loop loop{std::make_unique<SimPoller>(), {.wait = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(Waits, SimLoop, testing::Values(Wait::spin, Wait::busy_poll, Wait::event));

TEST_P(SimLoop, AYearPassesAtOnce) {
  const Time end = loop.run([](Loop& self) -> Task<Time> {
    co_await self.sleep(hours(24 * 365));
    co_return self.now();
  }(loop));
  EXPECT_GE(end.time_since_epoch(), hours(24 * 365));
  EXPECT_LT(end.time_since_epoch(), hours(24 * 365 + 1));
}

TEST_P(SimLoop, NothingHappensBetweenTwoTimers) {
  const Time start = loop.now();
  const Time end = loop.run([](Loop& self) -> Task<Time> {
    for (int i = 0; i < 100; ++i) co_await self.sleep(milliseconds(10));
    co_return self.now();
  }(loop));
  // Each sleep ends at most one tick of the wheel late, and no other time passes.
  EXPECT_GE(end - start, milliseconds(1000));
  EXPECT_LE(end - start, milliseconds(1001));
}

// Counts the waits, and those among them that may not sleep.
class WaitCounter final : public Poller {
 public:
  std::string_view name() const noexcept override { return "counting"; }
  Time now() const noexcept override { return inner_.now(); }
  std::size_t wait(Duration timeout, Time& now) override {
    ++waits;
    if (timeout == Duration::zero()) ++polls;
    return inner_.wait(timeout, now);
  }
  void wake() noexcept override {}
  void watch(int, Watcher&) override {}
  void unwatch(int, Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }

  std::size_t waits = 0;
  std::size_t polls = 0;

 private:
  SimPoller inner_;
};

TEST(Simulation, ALoopThatSleepsAtOnceAsksThePollerOnceATick) {
  auto made = std::make_unique<WaitCounter>();
  const WaitCounter& counter = *made;
  Loop loop(std::move(made), {.wait = Wait::event});
  loop.run([](Loop& self) -> Task<void> {
    for (int i = 0; i < 10; ++i) co_await self.sleep(milliseconds(1));
  }(loop));
  EXPECT_EQ(counter.waits, 11U);
  EXPECT_EQ(counter.polls, 1U) << "only after the last tick, when the task has ended";
}

std::vector<std::int64_t> trace(std::uint64_t seed, Wait wait) {
  Loop loop(std::make_unique<SimPoller>(), {.wait = wait});
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> times;
  loop.run([](Loop& self, std::mt19937_64& chance, std::vector<std::int64_t>& out) -> Task<void> {
    Scope scope;
    for (int id = 0; id < 20; ++id) {
      scope.spawn([](Loop& on, std::mt19937_64& source, std::vector<std::int64_t>& log, int self_id) -> Task<void> {
        for (int i = 0; i < 20; ++i) {
          co_await on.sleep(Duration(source() % 10'000'000));
          log.push_back(on.now().time_since_epoch().count() * 100 + self_id);
        }
      }(self, chance, out, id));
    }
    co_await scope.join();
  }(loop, random, times));
  return times;
}

TEST(Simulation, ASeedReplays) {
  EXPECT_EQ(trace(1, Wait::event), trace(1, Wait::event));
  EXPECT_EQ(trace(1, Wait::event), trace(1, Wait::spin)) << "how the loop waits is not a part of the simulation";
  EXPECT_NE(trace(1, Wait::event), trace(2, Wait::event));
}

TEST(Simulation, OneThatIsStuckSaysSo) {
  Loop loop(std::make_unique<SimPoller>(), {});
  struct Never {
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    void await_resume() const noexcept {}
  };
  EXPECT_THROW(loop.run([]() -> Task<void> {
    Never never;
    co_await never;
  }()),
               std::logic_error);
  EXPECT_EQ(Loop::current(), nullptr);
}

TEST(Simulation, ThereAreNoDescriptors) {
  SimPoller poller;
  struct Deaf final : Watcher {
    void on_ready(Readiness) override {}
  } watcher;
  EXPECT_THROW(poller.watch(0, watcher), std::logic_error);
}

// The first numbers of a loop.
std::array<std::uint64_t, 3> drawn_by(Loop& loop) {
  std::array<std::uint64_t, 3> drawn{};
  for (std::uint64_t& one : drawn) one = detail::LoopAccess::random(loop);
  return drawn;
}

TEST(LoopRandom, FollowsFromTheSeedOfASimulation) {
  const auto drawn = [](std::uint64_t seed) {
    Loop loop(std::make_unique<SimPoller>(seed), {});
    return drawn_by(loop);
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2)) << "also before the clock has moved";
}

// Processes may begin, or virtual machines go on, at the same time.
TEST(LoopRandom, DiffersBetweenLoopsThatBeginAtTheSameTime) {
  class StandingPoller final : public Poller {
   public:
    std::string_view name() const noexcept override { return "standing"; }
    Time now() const noexcept override { return Time(hours(1)); }
    std::size_t wait(Duration, Time&) override { return 0; }
    void wake() noexcept override {}
    void watch(int, Watcher&) override {}
    void unwatch(int, Watcher&) noexcept override {}
  };
  Loop one(std::make_unique<StandingPoller>(), {});
  Loop other(std::make_unique<StandingPoller>(), {});
  EXPECT_NE(drawn_by(one), drawn_by(other));
}

}  // namespace
}  // namespace hawser::exec
