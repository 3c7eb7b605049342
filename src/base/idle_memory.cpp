#include "base/idle_memory.h"

#include <malloc.h>

#include <cstddef>

#include "base/block_pool.h"

namespace hawser {

void release_idle_memory(bool all) noexcept {
  if (BlockPool* const pool = BlockPool::local()) {
    pool->shrink();
    if (all) pool->shrink();
  }
  // Less is not worth the time.
  constexpr std::size_t trimmed_bytes_least = std::size_t{32} << 20;
  if (all && mallinfo2().fordblks >= trimmed_bytes_least) malloc_trim(0);
}

}  // namespace hawser
