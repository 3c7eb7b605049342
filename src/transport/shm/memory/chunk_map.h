#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transport/shm/memory/layout.h"

namespace hawser::transport::shm {

// The chunks of a slab that are in use. A step takes 64 chunks, so that a region of many chunks costs little.
class ChunkMap {
 public:
  static constexpr std::size_t none = SIZE_MAX;

  // The neighbours [first, first + count), at least one.
  void use(std::size_t first, std::size_t count) noexcept {
    for_words(first, count, [](std::uint64_t& word, std::uint64_t mask) { word |= mask; });
  }
  void free(std::size_t first, std::size_t count) noexcept {
    for_words(first, count, [](std::uint64_t& word, std::uint64_t mask) { word &= ~mask; });
  }

  // The first of the lowest `wanted` neighbours within [first, last) that are free, or `none`. `wanted` is at least 1.
  std::size_t find_lowest(std::size_t first, std::size_t last, std::size_t wanted) const noexcept {
    while (first + wanted <= last) {
      const std::size_t free = next(first, last, free_ones);
      if (free + wanted > last) return none;
      first = next(free, free + wanted, used_ones);
      if (first == free + wanted) return free;
    }
    return none;
  }
  // The same for the highest ones within [0, last).
  std::size_t find_highest(std::size_t last, std::size_t wanted) const noexcept {
    while (last >= wanted) {
      const std::size_t end = behind_previous(0, last, free_ones);
      if (end < wanted) return none;
      last = behind_previous(end - wanted, end, used_ones);
      if (last == end - wanted) return last;
      --last;
    }
    return none;
  }

 private:
  static constexpr std::size_t word_bits = 64;
  static_assert(chunks_max % word_bits == 0);
  // Ones of a word XOR this are the chunks that are searched.
  static constexpr std::uint64_t used_ones = 0;
  static constexpr std::uint64_t free_ones = ~std::uint64_t{0};

  template <class Change>
  void for_words(std::size_t first, std::size_t count, Change change) noexcept {
    for (const std::size_t end = first + count; first < end;) {
      const std::size_t at = first % word_bits;
      const std::size_t part = std::min(end - first, word_bits - at);
      change(words_[first / word_bits], (~std::uint64_t{0} >> (word_bits - part)) << at);
      first += part;
    }
  }
  // The lowest such chunk within [at, last), or `last`.
  std::size_t next(std::size_t at, std::size_t last, std::uint64_t flip) const noexcept {
    while (at < last) {
      const std::uint64_t rest = (words_[at / word_bits] ^ flip) >> at % word_bits;
      if (rest != 0) return std::min(last, at + static_cast<std::size_t>(std::countr_zero(rest)));
      at = (at / word_bits + 1) * word_bits;
    }
    return last;
  }
  // The number behind the highest such chunk within [first, last), or `first`.
  std::size_t behind_previous(std::size_t first, std::size_t last, std::uint64_t flip) const noexcept {
    while (last > first) {
      const std::size_t at = (last - 1) % word_bits;
      const std::uint64_t rest = (words_[(last - 1) / word_bits] ^ flip) << (word_bits - 1 - at);
      if (rest != 0) return std::max(first, last - static_cast<std::size_t>(std::countl_zero(rest)));
      last -= at + 1;
    }
    return first;
  }

  std::array<std::uint64_t, chunks_max / word_bits> words_{};
};

}  // namespace hawser::transport::shm
