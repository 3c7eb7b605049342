#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace hawser {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; a big-endian host needs swaps here");

template <std::integral T>
T load_le(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <std::integral T>
void store_le(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace hawser
