#include "bench/results/medians.h"

#include <gtest/gtest.h>

namespace hawser::bench {
namespace {

CellResult result_of(std::uint64_t calls, double seconds, double p50_us, std::uint64_t errors = 0) {
  return {.cell = {.size_bytes = 128, .concurrency = 16},
          .seconds = seconds,
          .calls = calls,
          .errors = errors,
          .p50_us = p50_us,
          .p99_us = 10 * p50_us,
          .calls_at_once = 16};
}

TEST(Medians, OfAnOddNumberAreTheOnesInTheMiddle) {
  const CellResult results[] = {result_of(3000, 1, 7), result_of(1000, 1, 9), result_of(2000, 1, 1)};
  const CellResult median = median_of(results);
  EXPECT_EQ(median.calls, 2000u);
  EXPECT_EQ(median.p50_us, 7);
  EXPECT_EQ(median.p99_us, 70);
  EXPECT_EQ(median.cell.size_bytes, 128u);
  EXPECT_EQ(median.cell.concurrency, 16u);
  EXPECT_EQ(median.calls_at_once, 16u);
}

TEST(Medians, OfAnEvenNumberAreTheMeanOfTheTwoInTheMiddle) {
  const CellResult results[] = {result_of(1000, 1, 1), result_of(9000, 1, 2), result_of(2000, 1, 4),
                                result_of(3000, 1, 90)};
  const CellResult median = median_of(results);
  EXPECT_EQ(median.calls, 2500u);
  EXPECT_EQ(median.p50_us, 3);
}

TEST(Medians, AreOfRatesNotOfCounts) {
  // 3000 calls in 3 s are fewer a second than 2000 in 1 s.
  const CellResult results[] = {result_of(3000, 3, 1), result_of(2000, 1, 1), result_of(1500, 1, 1)};
  EXPECT_DOUBLE_EQ(median_of(results).calls_per_s(), 1500);
}

TEST(Medians, HideNoError) {
  CellResult results[] = {result_of(3, 1, 1), result_of(1, 1, 1, 2), result_of(2, 1, 1, 5)};
  results[1].first_error = "lost";
  const CellResult median = median_of(results);
  EXPECT_EQ(median.errors, 7u);
  EXPECT_EQ(median.first_error, "lost");
}

TEST(Medians, OfOneAreItself) {
  const CellResult result = result_of(100, 0.5, 3);
  EXPECT_EQ(median_of({&result, 1}).calls, 100u);
  EXPECT_EQ(median_of({&result, 1}).seconds, 0.5);
}

TEST(Ratio, IsOfCallsPerSecond) {
  EXPECT_DOUBLE_EQ(ratio_of(result_of(300, 1, 1), result_of(200, 2, 1)), 3);
  EXPECT_DOUBLE_EQ(ratio_of(result_of(50, 1, 1), result_of(100, 1, 1)), 0.5);
  EXPECT_EQ(ratio_of(result_of(50, 1, 1), result_of(0, 1, 1)), 0);
}

}  // namespace
}  // namespace hawser::bench
