#include "bench/results/histogram.h"

#include <algorithm>
#include <cmath>

namespace hawser::bench {

void Histogram::merge(const Histogram& other) noexcept {
  for (std::size_t i = 0; i < buckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  least_ = std::min(least_, other.least_);
  greatest_ = std::max(greatest_, other.greatest_);
}

std::uint64_t Histogram::quantile(double fraction) const noexcept {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_)));
  const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, count_);
  if (rank == count_) return greatest_;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::clamp(middle_of(i), least_, greatest_);
  }
  return greatest_;
}

std::uint64_t Histogram::middle_of(std::size_t index) noexcept {
  static_assert(index_of(value_end - 1) == buckets - 1);
  if (index < 2 * buckets_per_octave) return index;
  const std::size_t shift = index / buckets_per_octave - 1;
  const std::uint64_t begin = (index - shift * buckets_per_octave) << shift;
  return begin + ((std::uint64_t{1} << shift) - 1) / 2;
}

}  // namespace hawser::bench
