#include "pipe/loop_turn.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "exec/test/working_poller_testing.h"
#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::pipe {
namespace {

using namespace std::chrono_literals;

struct LoopTurnTest : testing::Test {
  // Messages until the clock is due.
  int count(std::size_t bytes) {
    int messages = 1;
    while (!turn.add_message(bytes)) ++messages;
    return messages;
  }

  Duration worked{};
  const Duration reading{};
  Loop loop{std::make_unique<exec::WorkingPoller>(worked, reading), {}};
  LoopTurn turn;
};

TEST_F(LoopTurnTest, TheClockIsReadForMessagesOfOneInterval) {
  constexpr std::size_t small = 10;
  constexpr int expected =
      (LoopTurn::clock_interval + LoopTurn::message_cost + small - 1) / (LoopTurn::message_cost + small);
  EXPECT_EQ(count(small), expected);
  EXPECT_TRUE(turn.add_message(small)) << "it is due until it has been read";
  EXPECT_FALSE(turn.over(loop));
  EXPECT_EQ(count(small), expected);
  EXPECT_FALSE(turn.over(loop));
  EXPECT_EQ(count(LoopTurn::clock_interval), 1) << "a large message is timed by itself";
}

TEST_F(LoopTurnTest, TheClockIsDueAtTheIntervalItself) {
  EXPECT_FALSE(turn.add_message(LoopTurn::clock_interval - LoopTurn::message_cost - 1));
  turn.add(1);
  EXPECT_FALSE(turn.over(loop));
  EXPECT_EQ(count(LoopTurn::clock_interval - LoopTurn::message_cost), 1);
}

TEST_F(LoopTurnTest, OtherWorkCountsAsBytes) {
  turn.add(LoopTurn::clock_interval);
  EXPECT_EQ(count(0), 1);
}

TEST_F(LoopTurnTest, EachMessageChangesTheWork) {
  const std::uint64_t before = turn.work();
  static_cast<void>(turn.add_message(0));
  EXPECT_NE(turn.work(), before);
}

TEST_F(LoopTurnTest, EndsAfterItsTimeInOneTick) {
  turn.begin(loop);
  worked = LoopTurn::time_max - 1ns;
  EXPECT_FALSE(turn.over(loop));
  turn.begin(loop);
  worked = LoopTurn::time_max;
  EXPECT_TRUE(turn.over(loop)) << "begin() in the same tick does not begin another turn";
}

TEST_F(LoopTurnTest, WithoutABeginningItBeginsWhereTheClockIsRead) {
  worked = 10 * LoopTurn::time_max;
  EXPECT_FALSE(turn.over(loop));
  worked += LoopTurn::time_max;
  EXPECT_TRUE(turn.over(loop));
}

TEST_F(LoopTurnTest, AnotherTickBeginsAnotherTurn) {
  turn.begin(loop);
  worked = LoopTurn::time_max;
  ASSERT_TRUE(turn.over(loop));
  loop.run([](Loop& on) -> Task<void> { co_await on.sleep(1ms); }(loop));
  EXPECT_FALSE(turn.over(loop));
}

}  // namespace
}  // namespace hawser::pipe
