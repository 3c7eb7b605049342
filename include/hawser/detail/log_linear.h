#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hawser::detail {

// Buckets for values below 2^value_bits whose width grows with the value, as in HdrHistogram (http://hdrhistogram.org):
// exact below 2^(bucket_bits + 1), and 2^bucket_bits buckets for each power of two above. The middle of a bucket is off
// by at most 1 / 2^(bucket_bits + 1) of a value in it.
template <unsigned bucket_bits, unsigned value_bits>
struct LogLinear {
  static constexpr std::uint64_t value_end = std::uint64_t{1} << value_bits;
  static constexpr std::size_t per_octave = std::size_t{1} << bucket_bits;
  static constexpr std::size_t buckets = (value_bits - bucket_bits + 1) * per_octave;

  // Values of value_end and more count in the last bucket.
  static constexpr std::size_t index_of(std::uint64_t value) noexcept {
    if (value >= value_end) [[unlikely]]
      return buckets - 1;
    // A value of n significant bits, n > bucket_bits, loses its lowest n - bucket_bits - 1 bits.
    const auto bits = static_cast<unsigned>(std::bit_width(value));
    const unsigned shift = bits > bucket_bits + 1 ? bits - bucket_bits - 1 : 0;
    return shift * per_octave + static_cast<std::size_t>(value >> shift);
  }
  // The least value of a bucket. first_of(buckets) == value_end.
  static constexpr std::uint64_t first_of(std::size_t index) noexcept {
    if (index < 2 * per_octave) return index;
    const std::size_t shift = index / per_octave - 1;
    return std::uint64_t{index - shift * per_octave} << shift;
  }
  static constexpr std::uint64_t middle_of(std::size_t index) noexcept {
    return first_of(index) + (first_of(index + 1) - 1 - first_of(index)) / 2;
  }
  static constexpr std::uint64_t last_of(std::size_t index) noexcept { return first_of(index + 1) - 1; }

  // Returns the bucket of the nearest-rank percentile: the first bucket such that a `fraction` of all values, 0 <
  // fraction <= 1, lies in it or below. `counts` has an element for each bucket and `count` as its sum, not 0.
  template <class Counts>
  static constexpr std::size_t bucket_of(const Counts& counts, std::uint64_t count, double fraction) noexcept {
    const double wanted = std::ceil(fraction * static_cast<double>(count));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets; ++i) {
      seen += counts[i];
      if (seen != 0 && static_cast<double>(seen) >= wanted) return i;
    }
    return buckets - 1;
  }
};

}  // namespace hawser::detail
