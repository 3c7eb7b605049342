#include "heap/memory_growth.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>

namespace hawser {
namespace {

using std::chrono::seconds;
using Advice = MemoryGrowth::Advice;

constexpr std::size_t much = MemoryGrowth::bytes_min;
constexpr std::size_t little = std::size_t{1} << 20;

// Readings in the shortest pause.
class GrowingMemory : public testing::Test {
 protected:
  Advice read(std::size_t bytes) {
    now += MemoryGrowth::reading_pause;
    return growth.read(now, bytes);
  }
  // The memory of a load that goes on: it is there again at the next reading after each trim. Returns the number of
  // readings until a trim.
  int readings_until_trim(std::size_t bytes) {
    for (int readings = 1; readings <= 1000; ++readings) {
      if (read(bytes) == Advice::trim) return readings;
    }
    return -1;
  }

  Time now{};
  MemoryGrowth growth;
};

TEST_F(GrowingMemory, ATrimFollowsWhenItNoLongerGrows) {
  EXPECT_EQ(read(little), Advice::none);
  growth.set_base(little);
  EXPECT_EQ(read(little + much - 1), Advice::none);
  EXPECT_EQ(read(little + 2 * much), Advice::read_again);
  EXPECT_EQ(read(little + 3 * much), Advice::read_again);
  EXPECT_EQ(read(little + 3 * much), Advice::trim);
  growth.set_base(little);
  EXPECT_EQ(read(little), Advice::none);
}

TEST_F(GrowingMemory, WhatATrimLeavesIsInUse) {
  EXPECT_EQ(readings_until_trim(10 * much), 2);
  growth.set_base(10 * much);
  EXPECT_EQ(read(10 * much), Advice::none);
  EXPECT_EQ(read(11 * much - 1), Advice::none);
  EXPECT_EQ(read(12 * much), Advice::read_again);
}

TEST_F(GrowingMemory, GrowthIsCountedFromTheLeast) {
  EXPECT_EQ(readings_until_trim(10 * much), 2);
  growth.set_base(10 * much);
  EXPECT_EQ(read(little), Advice::none) << "the application has freed its data";
  EXPECT_EQ(read(2 * much), Advice::read_again);
}

// A trim costs the load time, and returns nothing for long.
TEST_F(GrowingMemory, ALoadThatGoesOnIsRarelyTrimmed) {
  EXPECT_EQ(read(little), Advice::none);
  for (const int readings : {2, 2, 4, 8, 16, 32, 32, 32}) {
    EXPECT_EQ(readings_until_trim(2 * much), readings);
    growth.set_base(little);
  }
  for (Duration quiet{}; quiet <= MemoryGrowth::again_within; quiet += MemoryGrowth::reading_pause) {
    EXPECT_EQ(read(little), Advice::none);
  }
  EXPECT_EQ(readings_until_trim(2 * much), 2) << "another burst, long after it";
}

}  // namespace
}  // namespace hawser
