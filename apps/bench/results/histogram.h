#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hawser/detail/log_linear.h"

namespace hawser::bench {

// Histogram of durations in nanoseconds: exact below 256 ns, and with 128 buckets for each power of two above.
// Quantiles are off by at most 0.4 % of the value.
class LatencyHistogram {
 public:
  static constexpr unsigned bucket_bits = 7;
  static constexpr unsigned value_bits_max = 42;  // 73 minutes. Longer durations count as this.

  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    if (value >= Buckets::value_end) [[unlikely]]
      value = Buckets::value_end - 1;
    counts_[Buckets::index_of(value)] += times;
    count_ += times;
    if (value < least_) least_ = value;
    if (value > greatest_) greatest_ = value;
  }
  // Adds the counts of `other`.
  void merge(const LatencyHistogram& other) noexcept;

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t least() const noexcept { return count_ == 0 ? 0 : least_; }
  std::uint64_t greatest() const noexcept { return greatest_; }
  // Returns the smallest value that a `fraction` of all values does not exceed, 0 < fraction <= 1: the nearest-rank
  // percentile. 0 without values.
  std::uint64_t quantile(double fraction) const noexcept;

 private:
  using Buckets = detail::LogLinear<bucket_bits, value_bits_max>;

  std::array<std::uint64_t, Buckets::buckets> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t least_ = ~std::uint64_t{0};
  std::uint64_t greatest_ = 0;
};

}  // namespace hawser::bench
