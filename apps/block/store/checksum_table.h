#pragma once

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
  // The blocks [first, end) are zeros.
  Result<void> clear(std::uint64_t first, std::uint64_t end) {
    static constexpr std::array<std::uint32_t, 1024> zeros{};
    if (end - first <= zeros.size()) return write(first, std::span(zeros).first(end - first));
    return side_.zero(entry_offset(first), (end - first) * 4, true);
  }

 private:
  File& side_;
};

}  // namespace hawser::block
