#include "cli/call/call_pacer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "exec/sim_poller.h"
#include "hawser/scope.h"

namespace hawser::cli {
namespace {

using namespace std::chrono_literals;

// In virtual time.
void run(Task<void> (*test)(Loop&)) {
  Loop loop(std::make_unique<exec::SimPoller>(), {});
  loop.run(test(loop));
}

TEST(CallPacer, CallsBeginAtTheirTimes) {
  run([](Loop& loop) -> Task<void> {
    CallPacer pacer(1000);
    const Time begin = loop.now();
    for (const Duration at : {0ms, 5ms, 5ms, 7ms}) {
      const Permit permit = co_await pacer.admit(begin + at);
      EXPECT_GE(loop.now() - begin, at);
      EXPECT_LT(loop.now() - begin, at + 1ms);
    }
    EXPECT_EQ(pacer.late(), 0U);
    EXPECT_EQ(pacer.late_line(), "");
  });
}

TEST(CallPacer, ACallWaitsForAPlaceAndIsLate) {
  run([](Loop& loop) -> Task<void> {
    CallPacer pacer(1);
    const Time begin = loop.now();
    auto first = std::make_unique<Permit>(co_await pacer.admit(begin));
    Scope others;
    others.spawn([](Loop& on, std::unique_ptr<Permit> held) -> Task<void> {
      co_await on.sleep(10ms);
      held.reset();
    }(loop, std::move(first)));
    Permit second = co_await pacer.admit(begin + 2ms);
    EXPECT_GE(loop.now() - begin, 10ms);
    EXPECT_EQ(pacer.late_line(), "1 call was sent more than 1 ms late; the latency counts from the intended time\n");
    second = Permit();
    second = co_await pacer.admit(loop.now() - 999us);
    EXPECT_EQ(pacer.late(), 1U) << "by less than 1 ms";
    second = Permit();
    second = co_await pacer.admit(begin);
    EXPECT_EQ(pacer.late(), 2U);
    EXPECT_TRUE(pacer.late_line().starts_with("2 calls were sent ")) << pacer.late_line();
    co_await others.join();
  });
}

// The loop reads replies between the calls of a burst.
TEST(CallPacer, ABurstIsInterrupted) {
  run([](Loop& loop) -> Task<void> {
    CallPacer pacer(1000);
    int turns = 0;
    Scope others;
    others.spawn([](Loop& on, int& count) -> Task<void> {
      for (; count < 3; ++count) co_await on.sleep(Duration::zero());
    }(loop, turns));
    const Time begin = loop.now();
    for (int i = 0; i < 63; ++i) static_cast<void>(co_await pacer.admit(begin));
    EXPECT_EQ(turns, 0);
    // Timers of the same time may fire in any order.
    for (int i = 0; i < 65; ++i) static_cast<void>(co_await pacer.admit(begin));
    EXPECT_GT(turns, 0);
    co_await others.join();
  });
}

}  // namespace
}  // namespace hawser::cli
