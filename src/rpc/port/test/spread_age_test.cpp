#include "rpc/port/spread_age.h"

#include <gtest/gtest.h>

#include <set>

namespace hawser::rpc {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

TEST(SpreadAge, DiffersByATenthAtMost) {
  std::set<Duration> ages;
  for (std::uint64_t began = 0; began < 1000; ++began) {
    const Duration age = spread_age(seconds(100), began);
    EXPECT_GE(age, seconds(90));
    EXPECT_LE(age, seconds(110));
    ages.insert(age);
  }
  EXPECT_EQ(ages.size(), 21U);
}

// More than 265 years would pass the end of the clock.
TEST(SpreadAge, OfCenturiesIsForever) {
  for (const Duration max : {forever, forever - Duration(1), Duration(hours(24) * 365 * 280)}) {
    for (std::uint64_t began = 0; began < 100; ++began) EXPECT_EQ(spread_age(max, began), forever);
  }
  EXPECT_GT(spread_age(hours(24) * 365 * 250, 1), hours(24) * 365 * 200);
}

}  // namespace
}  // namespace hawser::rpc
