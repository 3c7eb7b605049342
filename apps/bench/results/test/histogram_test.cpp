#include "bench/results/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

namespace hawser::bench {
namespace {

constexpr double relative_error_max = 0.01;

std::uint64_t exact_quantile(std::vector<std::uint64_t> values, double fraction) {
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

TEST(LatencyHistogram, IsEmptyAtFirst) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.least(), 0u);
  EXPECT_EQ(histogram.greatest(), 0u);
  EXPECT_EQ(histogram.quantile(0.5), 0u);
}

TEST(LatencyHistogram, GivesASingleValueAtEveryQuantile) {
  for (const std::uint64_t value : {0ull, 1ull, 255ull, 256ull, 12'345ull, 3'000'000'000ull}) {
    LatencyHistogram histogram;
    histogram.record(value);
    for (const double fraction : {0.001, 0.5, 0.99, 1.0}) EXPECT_EQ(histogram.quantile(fraction), value);
  }
}

TEST(LatencyHistogram, IsExactBelow256) {
  LatencyHistogram histogram;
  for (std::uint64_t value = 0; value < 256; ++value) histogram.record(value);
  for (unsigned rank = 1; rank <= 256; ++rank) EXPECT_EQ(histogram.quantile(rank / 256.0), rank - 1);
}

TEST(LatencyHistogram, IsOffByLessThanOnePercentAtEveryMagnitude) {
  for (std::uint64_t value = 1; value < std::uint64_t{1} << (LatencyHistogram::value_bits_max - 1);
       value += value / 37 + 1) {
    LatencyHistogram histogram;
    histogram.record(value);
    histogram.record(value * 2);  // So that the median is not the greatest value, which is stored exactly.
    histogram.record(0);          // And not the least value.
    const double given = static_cast<double>(histogram.quantile(0.5));
    ASSERT_NEAR(given, static_cast<double>(value), relative_error_max * static_cast<double>(value)) << value;
  }
}

TEST(LatencyHistogram, AgreesWithSortedValues) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> latency_ns(std::log(20'000.0), 1.5);
  LatencyHistogram histogram;
  std::vector<std::uint64_t> values(100'000);
  for (std::uint64_t& value : values) {
    value = static_cast<std::uint64_t>(latency_ns(random));
    histogram.record(value);
  }
  for (const double fraction : {0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const double exact = static_cast<double>(exact_quantile(values, fraction));
    EXPECT_NEAR(static_cast<double>(histogram.quantile(fraction)), exact, relative_error_max * exact) << fraction;
  }
  EXPECT_EQ(histogram.greatest(), std::ranges::max(values));
  EXPECT_EQ(histogram.least(), std::ranges::min(values));
}

TEST(LatencyHistogram, MergesAsIfRecordedInOne) {
  std::mt19937_64 random(11);
  LatencyHistogram one;
  LatencyHistogram other;
  LatencyHistogram both;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t value = random() >> (24 + i % 30);
    (i % 3 == 0 ? one : other).record(value);
    both.record(value);
  }
  one.merge(other);
  EXPECT_EQ(one.count(), both.count());
  EXPECT_EQ(one.least(), both.least());
  EXPECT_EQ(one.greatest(), both.greatest());
  for (const double fraction : {0.01, 0.5, 0.9, 0.99, 1.0}) EXPECT_EQ(one.quantile(fraction), both.quantile(fraction));
}

TEST(LatencyHistogram, MergesAnEmptyOne) {
  LatencyHistogram histogram;
  histogram.record(42);
  histogram.merge(LatencyHistogram());
  EXPECT_EQ(histogram.count(), 1u);
  EXPECT_EQ(histogram.least(), 42u);
  EXPECT_EQ(histogram.greatest(), 42u);
}

TEST(LatencyHistogram, CountsWhatIsTooLongAsTheLongest) {
  LatencyHistogram histogram;
  histogram.record(~std::uint64_t{0});
  EXPECT_EQ(histogram.count(), 1u);
  EXPECT_EQ(histogram.quantile(0.5), (std::uint64_t{1} << LatencyHistogram::value_bits_max) - 1);
}

}  // namespace
}  // namespace hawser::bench
