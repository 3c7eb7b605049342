#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "hawser/time.h"

namespace hawser::cluster {

// Longer times of control planes and service configs count as this, so that ten times of one overflows nothing.
inline constexpr Duration remote_duration_max = std::chrono::hours(24 * 365 * 10);

// google.protobuf.Duration. Empty if it is negative or is not one.
inline std::optional<Duration> remote_duration(std::uint64_t seconds, std::uint64_t nanoseconds) {
  constexpr std::uint64_t seconds_most = 315'576'000'000;  // 10,000 years, as Protocol Buffers define it.
  constexpr std::uint64_t nanoseconds_most = 999'999'999;
  constexpr std::uint64_t seconds_kept = remote_duration_max / std::chrono::seconds(1);
  if (seconds > seconds_most || nanoseconds > nanoseconds_most) return std::nullopt;
  const Duration whole = std::chrono::seconds(std::min(seconds, seconds_kept));
  return std::min(whole + std::chrono::nanoseconds(nanoseconds), remote_duration_max);
}

}  // namespace hawser::cluster
