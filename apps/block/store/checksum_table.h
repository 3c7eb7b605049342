#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "block/store/file.h"
#include "block/store/layout.h"

namespace hawser::block {

// The checksums of blocks in the side file. Callers keep accesses of one block apart.
class ChecksumTable {
 public:
  explicit ChecksumTable(File& side) noexcept : side_(side) {}

  Result<void> read(std::uint64_t first, std::span<std::uint32_t> entries) {
    Result<void> read = side_.read(entry_offset(first), std::as_writable_bytes(entries));
    if (!replaced_.empty()) take_replaced(first, entries);
    return read;
  }
  // The entries of the blocks from `first` on, which begin a region, are these until the volume is opened again. Called
  // before the first request.
  void replace(std::uint64_t first, std::span<const std::uint32_t> entries) {
    replaced_[first].assign(entries.begin(), entries.end());
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
  void take_replaced(std::uint64_t first, std::span<std::uint32_t> entries) const {
    const std::uint64_t end = first + entries.size();
    for (auto part = replaced_.lower_bound(first / region_blocks * region_blocks);
         part != replaced_.end() && part->first < end; ++part) {
      const std::uint64_t from = std::max(first, part->first);
      const std::uint64_t to = std::min<std::uint64_t>(end, part->first + part->second.size());
      for (std::uint64_t block = from; block < to; ++block) entries[block - first] = part->second[block - part->first];
    }
  }

  File& side_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> replaced_;  // By the first block of a region.
};

}  // namespace hawser::block
