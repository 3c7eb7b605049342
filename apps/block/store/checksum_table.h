#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "block/store/file.h"
#include "block/store/layout.h"

namespace hawser::block {

// The checksums of blocks in the side file. Callers keep accesses of one block apart.
class ChecksumTable {
 public:
  explicit ChecksumTable(File& side) noexcept : side_(side) {}

  Result<void> read(std::uint64_t first, std::span<std::uint32_t> entries) {
    return side_.read(entry_offset(first), std::as_writable_bytes(entries));
  }
  Result<void> write(std::uint64_t first, std::span<const std::uint32_t> entries) {
    return side_.write(entry_offset(first), std::as_bytes(entries));
  }
  // The blocks [first, end) are zeros. `deallocate`: the table may lose space.
  Result<void> clear(std::uint64_t first, std::uint64_t end, bool deallocate) {
    static constexpr std::array<std::uint32_t, 1024> zeros{};
    if (end - first <= zeros.size()) {
      const auto cleared = std::span(zeros).first(end - first);
      std::array<std::uint32_t, zeros.size()> memory;
      const auto there = std::span(memory).first(cleared.size());
      // Zeros need no space where there are zeros.
      if (Result<void> found = read(first, there); !found || std::ranges::equal(there, cleared)) return found;
      return write(first, cleared);
    }
    return side_.zero(entry_offset(first), (end - first) * 4, deallocate);
  }

 private:
  File& side_;
};

}  // namespace hawser::block
