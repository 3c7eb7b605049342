#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hawser::out_of_memory {

// Allocations with an alignment, which are those of blocks, fail when they are larger. Any thread may set it.
inline std::atomic<std::size_t> block_bytes_max{SIZE_MAX};

// The allocation that fails, counted down by the threads of one side. Negative: none.
inline std::atomic<long> allocations_left{-1};
inline thread_local bool thread_of_client = false;
inline std::atomic<bool> client_fails{false};  // Otherwise all other threads are the side.
inline bool fails_now() noexcept {
  return allocations_left.load(std::memory_order_relaxed) >= 0 && thread_of_client == client_fails &&
         allocations_left.fetch_sub(1) == 0;
}

}  // namespace hawser::out_of_memory
