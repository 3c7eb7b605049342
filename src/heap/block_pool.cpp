#include "heap/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>
#include <utility>

#include "heap/external_block.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace hawser {
namespace {

// The calling thread's pool. Null before its first use and after its end.
constinit thread_local BlockPool* own_pool = nullptr;
constinit thread_local bool pool_gone = false;

// Blocks of this size and above lie in huge pages where the kernel provides them (MADV_HUGEPAGE). Copies to and from
// sockets then need a five-hundredth of the address translations.
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

std::align_val_t alignment_of(std::size_t bytes) noexcept {
  return std::align_val_t(bytes < huge_page_bytes ? alignof(Block) : huge_page_bytes);
}

// While a block is in the pool, the address sanitizer reports every access to its bytes.
void forbid([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(data, bytes);
#endif
}
void allow([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(data, bytes);
#endif
}

}  // namespace

BlockPool* BlockPool::local() noexcept { return own_pool != nullptr ? own_pool : make_local(); }

[[gnu::noinline]] BlockPool* BlockPool::make_local() noexcept {
  if (pool_gone) return nullptr;
  static thread_local BlockPool pool;
  return own_pool = &pool;
}

BlockPool::BlockPool() noexcept = default;

BlockPool::~BlockPool() {
  if (own_pool == this) {
    own_pool = nullptr;
    pool_gone = true;
  }
  for (Block*& head : free_) {
    while (head != nullptr) free(std::exchange(head, head->next_free_));
  }
}

// Classes are powers of two, so that a block fits any request of its class.
std::size_t BlockPool::class_of(std::size_t bytes) noexcept {
  static_assert(std::has_single_bit(class_bytes_min));
  // The width of a number that is never 0 needs no branch.
  constexpr int class_0_width = std::bit_width(class_bytes_min - 1);
  const std::size_t last = bytes - std::min<std::size_t>(bytes, 1);
  return static_cast<std::size_t>(std::bit_width(last | (class_bytes_min - 1)) - class_0_width);
}

[[gnu::noinline]] Block* BlockPool::allocate(std::size_t bytes) {
  // With the header, and rounded up to the alignment, such a size would become a small one.
  if (bytes > PTRDIFF_MAX) throw std::bad_alloc();
  void* memory = ::operator new(sizeof(Block) + bytes, alignment_of(bytes));
  // The result is ignored: the block works without huge pages as well.
  if (bytes >= huge_page_bytes) static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
  return ::new (memory) Block(bytes);
}

[[gnu::noinline]] void BlockPool::free(Block* block) noexcept {
  allow(block->data(), block->size_);
  const std::align_val_t alignment = alignment_of(block->size_);
  block->~Block();
  ::operator delete(block, alignment);
}

Block* BlockPool::acquire(std::size_t bytes) {
  if (bytes > class_bytes_max) [[unlikely]]
    return allocate(bytes);
  const std::size_t index = class_of(bytes);
  const std::size_t size = class_bytes_min << index;
  acquired_bytes_ += size;
  if (Block* const block = free_[index]; block != nullptr) [[likely]] {
    free_[index] = block->next_free_;
    allow(block->data(), size);
    const std::size_t cached = cached_bytes() - size;
    set_cached(cached);
    if (cached < cached_bytes_least_) cached_bytes_least_ = cached;
    block->references_.store(1, std::memory_order_relaxed);
    return block;
  }
  return allocate(size);
}

// The block may go to the pool of another thread, so it has the size of a class.
[[gnu::cold]] Block* BlockPool::allocate_without(std::size_t bytes) {
  return allocate(bytes > class_bytes_max ? bytes : class_bytes_min << class_of(bytes));
}

void BlockPool::release(Block* block) noexcept {
  const std::size_t bytes = block->size_;
  const std::size_t cached = cached_bytes() + bytes;
  if (bytes > class_bytes_max || bytes > acquired_bytes_ || cached > cached_bytes_max) [[unlikely]]
    return free(block);
  acquired_bytes_ -= bytes;
  // The size is that of a class.
  [[assume(bytes != 0)]];
  Block*& head = free_[static_cast<std::size_t>(std::countr_zero(bytes) - std::countr_zero(class_bytes_min))];
  block->next_free_ = head;
  head = block;
  set_cached(cached);
  forbid(block->data(), block->size_);
}

void BlockPool::shrink() noexcept {
  std::size_t cached = cached_bytes();
  const std::size_t wanted = cached - cached_bytes_least_;
  for (std::size_t i = class_count; i-- != 0;) {
    const std::size_t bytes = class_bytes_min << i;
    while (free_[i] != nullptr && cached >= wanted + bytes) {
      free(std::exchange(free_[i], free_[i]->next_free_));
      cached -= bytes;
    }
  }
  set_cached(cached);
  cached_bytes_least_ = cached;
}

// Apart from their callers, whose registers they would take up.
[[gnu::cold, gnu::noinline]] Block* BlockPool::acquire_first(std::size_t bytes) {
  BlockPool* const pool = local();
  return pool != nullptr ? pool->acquire(bytes) : allocate_without(bytes);
}
[[gnu::cold, gnu::noinline]] void BlockPool::release_first(Block* block) noexcept {
  BlockPool* const pool = local();
  return pool != nullptr ? pool->release(block) : free(block);
}

Block* Block::allocate(std::size_t bytes) {
  if (own_pool == nullptr) [[unlikely]]
    return BlockPool::acquire_first(bytes);
  return own_pool->acquire(bytes);
}

void Block::recycle() noexcept {
  if (external_) [[unlikely]] {
    ExternalBlock& block = static_cast<ExternalBlock&>(*this);
    return block.returned_(block);
  }
  if (own_pool == nullptr) [[unlikely]]
    return BlockPool::release_first(this);
  own_pool->release(this);
}

}  // namespace hawser
