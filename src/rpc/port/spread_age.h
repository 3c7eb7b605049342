#pragma once

#include <cstdint>

#include "hawser/time.h"

namespace hawser::rpc {

// Returns the age at which a connection is asked to end: from 90 to 110 per cent of `max`. `began` differs between
// connections, so that those that began together do not end together.
constexpr Duration spread_age(Duration max, std::uint64_t began) noexcept {
  if (max > forever / 110 * 100) return forever;
  const auto percent = static_cast<Duration::rep>(90 + ((began * 0x9E3779B97F4A7C15U) >> 33) % 21);
  return max / 100 * percent;
}

}  // namespace hawser::rpc
