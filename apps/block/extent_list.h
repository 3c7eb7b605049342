#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hawser/error.h"

namespace hawser::block {

class StoredVolume;

// Consecutive bytes of a volume that are zeros, or that may be data.
struct ExtentStatus {
  std::uint64_t bytes = 0;
  bool zeros = false;
};

// Entries of one list.
inline constexpr std::size_t extents_max = 4096;

// The extents from `offset` on: at least one, at most `count_max` and extents_max, which together may be shorter than
// `bytes`. Blocks, as the functions of StoredVolume do.
Result<std::vector<ExtentStatus>> list_extents(StoredVolume& volume, std::uint64_t offset, std::uint64_t bytes,
                                               std::size_t count_max);

}  // namespace hawser::block
