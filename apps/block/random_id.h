#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace hawser::block {

// From the system's source, so that nobody can guess it.
inline std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// A random number of 16 hexadecimal digits.
inline std::string random_id() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string id;
  for (std::uint64_t number = random_number(); id.size() < 16; number >>= 4) id += digits[number % 16];
  return id;
}

}  // namespace hawser::block
