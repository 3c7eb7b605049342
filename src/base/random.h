#pragma once

#include <cstdint>

namespace hawser {

// A small generator for jitter and simulation: SplitMix64 (Steele, Lea and Flood, 2014). The same seed gives the same
// numbers everywhere. Not for secrets.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // Returns a uniformly distributed number in [0, bound); bound is not 0.
  std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  bool chance(double probability) noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t state_;
};

}  // namespace hawser
