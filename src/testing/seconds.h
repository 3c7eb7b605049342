#pragma once

#include <cstdint>
#include <string>

#include "hawser/time.h"

namespace hawser::testing {

// Returns a time as seconds with six digits, such as "1.000250 s".
inline std::string seconds(Duration time) {
  const auto us = static_cast<std::uint64_t>(time / std::chrono::microseconds(1));
  const std::string digits = std::to_string(us % 1'000'000);
  return std::to_string(us / 1'000'000) + "." + std::string(6 - digits.size(), '0') + digits + " s";
}

}  // namespace hawser::testing
