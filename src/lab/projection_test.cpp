#include "lab/projection.h"

#include <gtest/gtest.h>

namespace hawser::lab {
namespace {

TEST(ProjectedCalls, OneAtATimeTakesTheRoundTripAndTheProcessors) {
  const Result<CallResult> result = project_calls({.calls = 200});
  ASSERT_TRUE(result) << result.error().describe();
  const double us = 1e6 / result->calls_per_s;
  EXPECT_GT(us, 2 * 1.7) << "not faster than the device's two trips";
  EXPECT_LT(us, 8);
  EXPECT_GE(result->p99_us, result->p90_us);
}

TEST(ProjectedCalls, MoreInFlightGiveMoreUntilTheProcessorIsFull) {
  const auto at = [](unsigned in_flight) {
    const Result<CallResult> result = project_calls({.in_flight = in_flight, .calls = 4000});
    EXPECT_TRUE(result) << result.error().describe();
    return result ? result->calls_per_s : 0;
  };
  const double one = at(1);
  EXPECT_GT(at(16), 4 * one);
  EXPECT_GE(at(256), 0.95 * at(16));
  EXPECT_LT(at(256), 1e9 / 290) << "what a side's processor can do";
}

TEST(ProjectedCalls, LargeRequestsFillTheLink) {
  CallPlan plan{.request_bytes = std::size_t{256} << 10, .in_flight = 16, .calls = 400};
  const Result<CallResult> result = project_calls(plan);
  ASSERT_TRUE(result) << result.error().describe();
  const double gbit = result->calls_per_s * static_cast<double>(plan.request_bytes) * 8 / 1e9;
  EXPECT_GT(gbit, 50);
  EXPECT_LE(gbit, 100);
}

TEST(ProjectedCalls, EqualSeedsGiveEqualProjections) {
  CallPlan plan{.in_flight = 8, .calls = 500};
  plan.device.jitter = 0.2;
  EXPECT_EQ(project_calls(plan)->calls_per_s, project_calls(plan)->calls_per_s);
}

}  // namespace
}  // namespace hawser::lab
