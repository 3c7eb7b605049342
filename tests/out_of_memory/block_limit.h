#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hawser::out_of_memory {

// Allocations with an alignment, which are those of blocks, fail when they are larger. Any thread may set it.
inline std::atomic<std::size_t> block_bytes_max{SIZE_MAX};

}  // namespace hawser::out_of_memory
