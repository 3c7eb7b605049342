#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hawser::bench {

// Histogram of durations in nanoseconds, in buckets whose width grows with the value, as in HdrHistogram
// (http://hdrhistogram.org): exact below 256 ns, and with 128 buckets for each power of two above. Quantiles are off by
// at most 0.4 % of the value.
class Histogram {
 public:
  static constexpr unsigned bucket_bits = 7;
  static constexpr unsigned value_bits_max = 42;  // 73 minutes. Longer durations count as this.

  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    if (value >= value_end) [[unlikely]]
      value = value_end - 1;
    counts_[index_of(value)] += times;
    count_ += times;
    if (value < least_) least_ = value;
    if (value > greatest_) greatest_ = value;
  }
  // Adds the counts of `other`.
  void merge(const Histogram& other) noexcept;

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t least() const noexcept { return count_ == 0 ? 0 : least_; }
  std::uint64_t greatest() const noexcept { return greatest_; }
  // Returns the smallest value that a `fraction` of all values does not exceed, 0 < fraction <= 1: the nearest-rank
  // percentile. 0 without values.
  std::uint64_t quantile(double fraction) const noexcept;

 private:
  static constexpr std::uint64_t value_end = std::uint64_t{1} << value_bits_max;
  static constexpr std::size_t buckets_per_octave = std::size_t{1} << bucket_bits;
  static constexpr std::size_t buckets = (value_bits_max - bucket_bits + 1) * buckets_per_octave;

  // A value of n significant bits, n > bucket_bits, loses its lowest n - bucket_bits - 1 bits.
  static constexpr unsigned shift_of(std::uint64_t value) noexcept {
    const auto bits = static_cast<unsigned>(std::bit_width(value));
    return bits > bucket_bits + 1 ? bits - bucket_bits - 1 : 0;
  }
  static constexpr std::size_t index_of(std::uint64_t value) noexcept {
    const unsigned shift = shift_of(value);
    return shift * buckets_per_octave + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t middle_of(std::size_t index) noexcept;

  std::array<std::uint64_t, buckets> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t least_ = ~std::uint64_t{0};
  std::uint64_t greatest_ = 0;
};

}  // namespace hawser::bench
