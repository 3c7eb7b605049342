#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "hawser/bytes.h"

namespace hawser {

// The calling thread's cache of freed blocks, by size class (powers of two). A block goes to the pool of the thread
// that drops its last reference, if that thread has acquired as many bytes: a thread that only drops blocks of others
// would keep memory that it never uses. The cache is bounded. All other blocks are returned to the allocator.
class BlockPool {
 public:
  static constexpr std::size_t class_bytes_min = 256;
  static constexpr std::size_t class_count = 16;  // 256 B to 8 MiB.
  static constexpr std::size_t class_bytes_max = class_bytes_min << (class_count - 1);
  static constexpr std::size_t cached_bytes_max = std::size_t{32} << 20;  // Per thread.

  // Returns the calling thread's pool, or null when the thread is ending and its pool is destroyed already.
  static BlockPool* local() noexcept;

  BlockPool() noexcept;
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  Block* acquire(std::size_t bytes);
  void release(Block* block) noexcept;

  // Any thread, while the thread of the pool exists.
  std::size_t cached_bytes() const noexcept { return cached_bytes_.load(std::memory_order_relaxed); }
  // Returns the memory that was in the cache ever since the previous call to the allocator. Called now and then.
  void shrink() noexcept;

  // As Block::allocate() and Block::recycle(), in a thread that may have no pool yet, or none any more.
  static Block* acquire_first(std::size_t bytes);
  static void release_first(Block* block) noexcept;
  // A block for a thread whose pool is destroyed already.
  static Block* allocate_without(std::size_t bytes);
  static void free(Block* block) noexcept;

 private:
  static BlockPool* make_local() noexcept;
  static Block* allocate(std::size_t bytes);
  static std::size_t class_of(std::size_t bytes) noexcept;
  void set_cached(std::size_t bytes) noexcept { cached_bytes_.store(bytes, std::memory_order_relaxed); }

  std::array<Block*, class_count> free_{};
  std::atomic<std::size_t> cached_bytes_{0};  // Written by the pool's thread.
  std::size_t cached_bytes_least_ = 0;        // Since the last shrink().
  std::size_t acquired_bytes_ = 0;            // Acquired by this thread, less those that it has put into the cache.
};

}  // namespace hawser
