#include "exec/long_turns.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "exec/loop_statistics.h"
#include "exec/loop_work.h"
#include "hawser/detail/loop_access.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {
namespace {

using detail::LoopWork;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LongTurns, HaveTheirLengthUntilOthersTakeTheirPlaces) {
  LongTurns turns;
  const Time first{seconds(1)};
  EXPECT_EQ(turns.length(Time{}), Duration::zero());
  EXPECT_EQ(turns.length(first), Duration::zero());
  EXPECT_EQ(turns.end(first, first + milliseconds(20)), first + milliseconds(20));
  EXPECT_EQ(turns.length(first), milliseconds(20));
  EXPECT_EQ(turns.length(first - Duration(1)), Duration::zero());
  EXPECT_EQ(turns.length(first + milliseconds(20)), Duration::zero()) << "the next turn was short";
  for (std::size_t i = 1; i <= LongTurns::kept; ++i) {
    EXPECT_EQ(turns.length(first), milliseconds(20));
    turns.end(first + seconds(i), first + seconds(i) + milliseconds(10));
  }
  EXPECT_EQ(turns.length(first), Duration::zero());
  EXPECT_EQ(turns.length(first + seconds(1)), milliseconds(10));
}

// Each time at which the clock was read within the turn lasts until its end, and not into the next turn.
TEST(LongTurns, LastFromEachReadingOfTheClockToTheirEnd) {
  LongTurns turns;
  const Time begin{seconds(1)};
  const auto at = [begin](int ms) { return begin + milliseconds(ms); };
  EXPECT_EQ(turns.advance(at(0), at(20)), milliseconds(20));
  EXPECT_EQ(turns.advance(at(20), at(50)), milliseconds(50));
  EXPECT_EQ(turns.length(at(0)), milliseconds(50)) << "the turn is not over";
  turns.end(at(50), at(51));
  turns.end(at(51), at(90));
  EXPECT_EQ(turns.length(at(0)), milliseconds(51));
  EXPECT_EQ(turns.length(at(20)), milliseconds(31));
  EXPECT_EQ(turns.length(at(50)), milliseconds(1));
  EXPECT_EQ(turns.length(at(51)), milliseconds(39));
}

TEST(LongTurns, HaveOnePlaceForAllReadingsOfTheClock) {
  LongTurns turns;
  Time now{seconds(1)};
  const Time begin = now;
  for (std::size_t i = 0; i <= 2 * LongTurns::kept; ++i, now += milliseconds(10))
    turns.advance(now, now + milliseconds(10));
  turns.end(now, now);
  EXPECT_EQ(turns.length(begin), now - begin);
}

// Reads the clock and then delivers input, which works for a while, as the pollers of descriptors do.
class InputPoller final : public Poller {
 public:
  std::string_view name() const noexcept override { return "input"; }
  Time now() const noexcept override { return clock; }
  std::size_t wait(Duration timeout, Time& now) override {
    if (timeout != forever) clock += timeout;
    now = clock;
    if (!input) return 0;
    std::exchange(input, nullptr)();
    return 1;
  }
  void wake() noexcept override {}
  void watch(int, Watcher&) override {}
  void unwatch(int, Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }

  Time clock{seconds(1)};
  std::function<void()> input;
};

// A poll ends a turn and begins the next one with its input. Both are long, and after() reads the clock in them.
TEST(LongTurns, OfALoopEndWhereThePollReadsTheClock) {
  for (const bool read_before : {false, true}) {
    SCOPED_TRACE(read_before ? "after() in both turns" : "after() in the second turn");
    auto* const poller = new InputPoller;
    Loop loop(std::unique_ptr<Poller>(poller), LoopOptions{.wait = Wait::spin, .log = no_log()});
    const auto work = [&](int ms) { poller->clock += milliseconds(ms); };
    Time begin{};
    Time read{};
    Time second{};
    loop.run([](Loop& on, auto body) -> Task<void> {
      co_await on.sleep_until(on.now() + milliseconds(1));
      body();
      co_await on.sleep_until(on.now() + milliseconds(1));
    }(loop, [&] {
               begin = loop.now();
               work(100);
               if (read_before) loop.after(Duration::zero());
               read = loop.now();
               work(200);
               poller->input = [&] {
                 second = loop.now();
                 work(20);
                 loop.after(Duration::zero());
                 EXPECT_EQ(detail::LoopAccess::tick_begin(loop), second);
                 work(30);
               };
             }));
    EXPECT_EQ(LoopWork::turn_length(loop, begin), milliseconds(300));
    EXPECT_EQ(LoopWork::turn_length(loop, read), milliseconds(read_before ? 200 : 300));
    EXPECT_EQ(second, begin + milliseconds(300));
    EXPECT_EQ(LoopWork::turn_length(loop, second), milliseconds(50));
    const LoopStatistics statistics = detail::LoopAccess::statistics(loop);
    EXPECT_EQ(statistics.longest, milliseconds(300));
    EXPECT_EQ(statistics.busy, milliseconds(350));
  }
}

// Its last tick has left work, which is not sent before. If it has left none, the time in between does not count.
TEST(LongTurns, OfAnEmbeddedLoopThatHasWorkLeftEndWhenItGoesOn) {
  auto* const poller = new InputPoller;
  Loop loop(std::unique_ptr<Poller>(poller), LoopOptions{.log = no_log()});
  Time begin{};
  poller->input = [&] {
    begin = loop.now();
    poller->clock += milliseconds(20);
  };
  EXPECT_EQ(LoopWork::run_ready(loop, 1), Duration::zero());
  poller->clock += milliseconds(30);
  EXPECT_EQ(LoopWork::run_ready(loop, 1), forever);
  EXPECT_EQ(LoopWork::turn_length(loop, begin), milliseconds(50));
  const Time last = loop.now();
  poller->clock += seconds(1);
  EXPECT_EQ(LoopWork::run_ready(loop, 1), forever);
  EXPECT_EQ(LoopWork::turn_length(loop, last), Duration::zero());
}

}  // namespace
}  // namespace hawser::exec
