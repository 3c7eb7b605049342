#include "lab/model/projection.h"

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

// The first calls include the registration of memory, which the connection does once.
TEST(ProjectedCalls, AreMeasuredAfterTheWarmUp) {
  CallPlan cheap{.in_flight = 16, .calls = 300};
  CallPlan dear = cheap;
  dear.device.registration_ns *= 10;
  dear.device.registration_page_ns *= 10;
  EXPECT_EQ(project_calls(cheap)->p99_us, project_calls(dear)->p99_us);
  dear.warm_up_calls = cheap.warm_up_calls = 1;
  EXPECT_LT(project_calls(cheap)->p99_us, project_calls(dear)->p99_us);
}

TEST(ProjectedCalls, EqualSeedsGiveEqualProjections) {
  CallPlan plan{.in_flight = 8, .calls = 500};
  plan.device.jitter = 0.2;
  EXPECT_EQ(project_calls(plan)->calls_per_s, project_calls(plan)->calls_per_s);
}

TEST(ProjectedRanges, ContainThePlanAsItIsAndAreTheSameBySeed) {
  const CallPlan plan{.in_flight = 4, .calls = 200};
  const double nominal = project_calls(plan)->calls_per_s;
  const Result<CallRanges> ranges = project_ranges(plan, {.draws = 6});
  ASSERT_TRUE(ranges) << ranges.error().describe();
  EXPECT_TRUE(ranges->calls_per_s.contains(nominal));
  EXPECT_GT(ranges->calls_per_s.high, 1.1 * ranges->calls_per_s.low) << "fitted and assumed constants are uncertain";
  const Result<CallRanges> again = project_ranges(plan, {.draws = 6});
  EXPECT_EQ(again->calls_per_s.low, ranges->calls_per_s.low);
  EXPECT_EQ(again->calls_per_s.high, ranges->calls_per_s.high);
  CallPlan other = plan;
  other.seed = 2;
  EXPECT_NE(project_ranges(other, {.draws = 6})->calls_per_s.low, ranges->calls_per_s.low);
}

TEST(ProjectedRanges, AreNarrowerWhereMoreIsKnown) {
  const CallPlan plan{.calls = 200};
  const auto range = [&](const Uncertainty& uncertainty) { return project_ranges(plan, uncertainty)->calls_per_s; };
  const Range unknown = range({});
  const Range known = range({.call = false, .half_trip_us = 2});
  EXPECT_LT(known.high / known.low, unknown.high / unknown.low)
      << unknown.low << " to " << unknown.high << ", known " << known.low << " to " << known.high;
  EXPECT_LT(range({.call = false, .half_trip_us = 6}).high, known.low);
}

}  // namespace
}  // namespace hawser::lab
