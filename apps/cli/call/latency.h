#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "hawser/detail/log_linear.h"
#include "hawser/time.h"

namespace hawser::cli {

// A histogram of latencies. Percentiles are off by at most 0.4 %. Latencies above 73 minutes count as this.
class Latencies {
 public:
  void record(Duration latency) noexcept;
  std::uint64_t count() const noexcept { return count_; }
  // The latency that a `fraction` of all does not exceed, 0 < fraction <= 1. Zero without latencies.
  Duration percentile(double fraction) const noexcept;

  // One line: count, minimum, percentiles, maximum.
  std::string text() const;
  // An object with microseconds.
  std::string json() const;
  // A line with a bar for each power of two.
  std::string bars() const;

 private:
  using Buckets = detail::LogLinear<7, 42>;

  std::array<std::uint64_t, Buckets::buckets> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t least_ = ~std::uint64_t{0};
  std::uint64_t greatest_ = 0;
  double sum_ = 0;
};

}  // namespace hawser::cli
