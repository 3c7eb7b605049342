#include "os/thread_schedule.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace hawser {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

TEST(ThreadSchedule, IsParsed) {
  const auto found = parse_thread_schedule("12 34 56\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->busy_ns, 12U);
  EXPECT_EQ(found->ready_ns, 34U);
  EXPECT_EQ(found->runs, 56U);
  const std::string limit = std::to_string(largest);
  const auto at_the_limit = parse_thread_schedule(limit + " " + limit + " " + limit);
  ASSERT_TRUE(at_the_limit);
  EXPECT_EQ(at_the_limit->ready_ns, largest);
  for (const char* const line : {"", "1", "1 2", "1 2 x", "-1 2 3", "1 18446744073709551616 3"}) {
    EXPECT_FALSE(parse_thread_schedule(line)) << line;
  }
}

TEST(ReadyTime, IsThatBetweenTheFirstReadingAndTheLast) {
  ReadyTime time;
  EXPECT_EQ(time.nanoseconds(), 0U);
  EXPECT_TRUE(time.add({.ready_ns = 500, .runs = 3}));
  EXPECT_EQ(time.nanoseconds(), 0U);
  EXPECT_TRUE(time.add({.ready_ns = 500, .runs = 3}));
  EXPECT_TRUE(time.add({.ready_ns = 720, .runs = 9}));
  EXPECT_EQ(time.nanoseconds(), 220U);
}

// The difference of the two threads would be nearly 2^64.
TEST(ReadyTime, AnotherThreadWithTheNumberIsNotAdded) {
  ReadyTime time;
  EXPECT_TRUE(time.add({.ready_ns = 1'000'000, .runs = 50}));
  EXPECT_TRUE(time.add({.ready_ns = 1'000'700, .runs = 60}));
  EXPECT_FALSE(time.add({.ready_ns = 40, .runs = 2}));
  EXPECT_EQ(time.nanoseconds(), 700U);
  EXPECT_FALSE(time.add({.ready_ns = 40, .runs = 70}));         // It has run often and never waited.
  EXPECT_FALSE(time.add({.ready_ns = 2'000'000, .runs = 10}));  // It has waited longer.
  EXPECT_EQ(time.nanoseconds(), 700U);
  ReadyTime other;
  EXPECT_TRUE(other.add({.ready_ns = 40, .runs = 2}));
  EXPECT_TRUE(other.add({.ready_ns = 45, .runs = 3}));
  EXPECT_EQ(other.nanoseconds(), 5U);
}

}  // namespace
}  // namespace hawser
