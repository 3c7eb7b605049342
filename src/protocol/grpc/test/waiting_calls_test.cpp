#include "protocol/grpc/waiting_calls.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace hawser::protocol::grpc {
namespace {

TEST(GrpcWaitingCalls, FewCallsBeginAboveTheMark) {
  WaitingCalls waiting;
  const ClientBacklog backlog{.bytes = 150, .mark = 100};
  std::uint32_t taken = 0;
  const auto is_taken = [&](std::uint32_t call) { return call == taken; };
  for (std::uint32_t call = 1; call <= WaitingCalls::above_mark_calls_max; ++call) {
    EXPECT_TRUE(waiting.begins_above_mark(call, backlog, is_taken));
  }
  EXPECT_FALSE(waiting.begins_above_mark(100, backlog, is_taken));
  taken = 3;
  EXPECT_TRUE(waiting.begins_above_mark(100, backlog, is_taken));
  EXPECT_FALSE(waiting.begins_above_mark(101, backlog, is_taken));
}

TEST(GrpcWaitingCalls, NoneBeginsFarAboveTheMarkOrWithoutMemory) {
  WaitingCalls waiting;
  const auto is_taken = [](std::uint32_t) { return true; };
  EXPECT_FALSE(waiting.begins_above_mark(1, {.bytes = 202, .mark = 100}, is_taken));
  EXPECT_FALSE(waiting.begins_above_mark(1, {.bytes = 150, .mark = 100, .memory_left = false}, is_taken));
  EXPECT_TRUE(waiting.begins_above_mark(1, {.bytes = 201, .mark = 100}, is_taken));
}

TEST(GrpcWaitingCalls, OneBeginsIfTheClientTakesNothing) {
  WaitingCalls waiting;
  waiting.watch(10);
  EXPECT_FALSE(waiting.check({.bytes = 150, .mark = 100}, 20));
  EXPECT_TRUE(waiting.check({.bytes = 150, .mark = 100}, 20));
  // The calls that began so may add as much as the mark.
  EXPECT_TRUE(waiting.check({.bytes = 250, .mark = 100}, 20));
  EXPECT_FALSE(waiting.check({.bytes = 251, .mark = 100}, 20));
  waiting.on_low_backlog();
  EXPECT_TRUE(waiting.check({.bytes = 251, .mark = 100}, 20));
  EXPECT_FALSE(waiting.check({.bytes = 251, .mark = 100, .memory_left = false}, 20));
}

TEST(GrpcWaitingCalls, EndedCallsLeaveTheQueueWhenItIsLong) {
  WaitingCalls waiting;
  for (std::uint32_t call = 1; call <= 4; ++call) waiting.add(call, 2, [](std::uint32_t) { return true; });
  EXPECT_EQ(waiting.front(), 1U);
  waiting.add(5, 2, [](std::uint32_t call) { return call != 4; });
  EXPECT_EQ(waiting.front(), 4U);
  waiting.pop_front();
  EXPECT_EQ(waiting.front(), 5U);
}

}  // namespace
}  // namespace hawser::protocol::grpc
