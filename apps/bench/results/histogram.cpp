#include "bench/results/histogram.h"

#include <algorithm>

namespace hawser::bench {

void LatencyHistogram::merge(const LatencyHistogram& other) noexcept {
  for (std::size_t i = 0; i < Buckets::buckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  least_ = std::min(least_, other.least_);
  greatest_ = std::max(greatest_, other.greatest_);
}

std::uint64_t LatencyHistogram::quantile(double fraction) const noexcept {
  if (count_ == 0) return 0;
  if (fraction * static_cast<double>(count_) > static_cast<double>(count_ - 1)) return greatest_;
  return std::clamp(Buckets::middle_of(Buckets::bucket_of(counts_, count_, fraction)), least_, greatest_);
}

}  // namespace hawser::bench
