#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hawser::protocol::grpc {

struct OptionBound {
  std::string_view name;
  std::uint64_t value;
  std::uint64_t min;
  std::uint64_t max;
};

// Throws std::invalid_argument for the first value that is not within its bounds. `options`: the name of their struct.
inline void check_bounds(std::string_view options, std::initializer_list<OptionBound> bounds) {
  for (const OptionBound& bound : bounds) {
    if (bound.value >= bound.min && bound.value <= bound.max) continue;
    throw std::invalid_argument("hawser: " + std::string(options) + "::" + std::string(bound.name) + " is " +
                                std::to_string(bound.value) + ", and must be from " + std::to_string(bound.min) +
                                " to " + std::to_string(bound.max));
  }
}

}  // namespace hawser::protocol::grpc
