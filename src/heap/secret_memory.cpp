#include "heap/secret_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/at_fork.h"
#include "heap/system_page.h"

// Objects in secret memory may hold the only pointers to objects elsewhere, which would be reported as leaks.
extern "C" [[gnu::weak]] void __lsan_register_root_region(const void* begin, std::size_t bytes);

namespace hawser {
namespace {

// ---- Sizes ----

// Slabs begin at multiples of their size. A slab has blocks of one class. Larger blocks have a span of slabs, whose
// number is a power of two.
constexpr std::size_t slab_bytes = 64 * 1024;
constexpr std::size_t head_bytes = 64;  // The beginning of a slab or a span, before its first block.
constexpr std::size_t slab_room = slab_bytes - head_bytes;
constexpr std::size_t orders = 21;          // Spans of 1, 2, 4 ... slabs.
constexpr std::size_t kept_slabs_max = 64;  // Free slabs whose memory stays in use.

// Up to 128 bytes in steps of 16; then four classes for each doubling up to 16 KiB; then a third and a half of a slab.
constexpr std::size_t small_classes = 8;
constexpr std::size_t stepped_classes = small_classes + std::size_t{4} * 7;
constexpr std::size_t classes = stepped_classes + 2;
constexpr std::size_t stepped_bytes_max = 16 * 1024;

constexpr std::array<std::uint32_t, classes> make_class_bytes() {
  std::array<std::uint32_t, classes> all{};
  std::size_t index = 0;
  for (; index < small_classes; ++index) all[index] = static_cast<std::uint32_t>(16 * (index + 1));
  for (std::uint32_t base = 128; base < stepped_bytes_max; base *= 2) {
    for (std::uint32_t step = 1; step <= 4; ++step) all[index++] = base + base / 4 * step;
  }
  all[index++] = slab_room / 3 / 16 * 16;
  all[index++] = slab_room / 2 / 16 * 16;
  return all;
}
constexpr std::array class_bytes = make_class_bytes();
static_assert(class_bytes[stepped_classes - 1] == stepped_bytes_max);

// `classes`: a span.
std::size_t class_of(std::size_t bytes) noexcept {
  if (bytes <= 128) return bytes == 0 ? 0 : (bytes - 1) / 16;
  if (bytes <= stepped_bytes_max) {
    const auto doubling = static_cast<std::size_t>(std::bit_width(bytes - 1));  // 8 for 129 to 256.
    const std::size_t base = std::size_t{1} << (doubling - 1);
    return small_classes + 4 * (doubling - 8) + (bytes - 1 - base) / (base / 4);
  }
  if (bytes <= class_bytes[stepped_classes]) return stepped_classes;
  return bytes <= class_bytes[stepped_classes + 1] ? stepped_classes + 1 : classes;
}

// Blocks of a class that a thread keeps. So a thread keeps 452 KiB at most.
constexpr std::size_t kept_blocks_max(std::size_t kind) noexcept {
  return std::clamp<std::size_t>(8 * 1024 / class_bytes[kind], 2, 64);
}

}  // namespace

// The blocks that a thread keeps.
struct SecretCache {
  struct Block {
    Block* next;
  };
  // `ended`: the thread is about to end, and keeps nothing any more.
  enum class Keeping : std::uint8_t { no, yes, ended };

  Keeping keeping = Keeping::no;
  std::array<std::atomic<std::uint8_t>, classes> counts{};  // Written by the thread.
  std::array<Block*, classes> blocks{};

  std::uint8_t count(std::size_t kind) const noexcept { return counts[kind].load(std::memory_order_relaxed); }
  Block* pop(std::size_t kind) noexcept {
    Block* const block = blocks[kind];
    blocks[kind] = block->next;
    counts[kind].store(static_cast<std::uint8_t>(count(kind) - 1), std::memory_order_relaxed);
    return block;
  }
  void push(std::size_t kind, Block* block) noexcept {
    block->next = blocks[kind];
    blocks[kind] = block;
    counts[kind].store(static_cast<std::uint8_t>(count(kind) + 1), std::memory_order_relaxed);
  }
};

namespace {

using FreeBlock = SecretCache::Block;
using Keeping = SecretCache::Keeping;

// ---- What all threads share ----

struct Slab {
  std::uint32_t kind;    // The class, or `classes` and the order of a span.
  std::uint32_t used;    // Blocks that threads hold or keep.
  std::uint32_t carved;  // Blocks that were ever used. Those behind them are not in `free`.
  FreeBlock* free;
  Slab* previous;
  Slab* next;
};
static_assert(sizeof(Slab) <= head_bytes);

struct SecretRange {
  std::mutex mutex;  // Guards all members.
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::size_t usable_bytes = 0;  // The part that may be read and written.
  std::size_t taken_bytes = 0;   // The part that was ever in a slab or a span.
  int error = 0;                 // Why there is no range.
  std::size_t kept_slabs = 0;
  Slab* kept_free = nullptr;  // The list contains these slabs.
  std::array<Slab*, classes> with_room{};
  std::array<Slab*, orders> free_spans{};  // Their memory was returned to the system.
};
// Threads may use it until the process ends.
static_assert(std::is_trivially_destructible_v<SecretRange>);
constinit SecretRange range;
// For contains(), without the lock. The number of bytes is written last.
constinit std::atomic<std::uintptr_t> range_begin{0};
constinit std::atomic<std::size_t> range_size{0};

Slab* slab_of(const void* block) noexcept {
  return reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(block) & ~std::uintptr_t{slab_bytes - 1});
}
std::byte* first_block(Slab* slab) noexcept { return reinterpret_cast<std::byte*>(slab) + head_bytes; }

// With the mutex. False if there is no range.
bool reserve_range() noexcept {
  if (range.begin != nullptr) return true;
  for (std::size_t bytes = SecretMemory::range_bytes; bytes >= SecretMemory::range_bytes_min; bytes /= 4) {
    // Memory that cannot be accessed does not count as used.
    void* const found =
        mmap(nullptr, bytes + slab_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) {
      range.error = errno;
      continue;
    }
    if (madvise(found, bytes + slab_bytes, MADV_DONTDUMP) != 0) {
      range.error = errno;
      munmap(found, bytes + slab_bytes);
      return false;
    }
    const std::uintptr_t aligned = (reinterpret_cast<std::uintptr_t>(found) + slab_bytes - 1) & ~(slab_bytes - 1);
    range.begin = reinterpret_cast<std::byte*>(aligned);
    range.bytes = bytes;
    range_begin.store(aligned, std::memory_order_relaxed);
    range_size.store(bytes, std::memory_order_release);
    if (__lsan_register_root_region != nullptr) __lsan_register_root_region(range.begin, bytes);
    at_fork([] { range.mutex.lock(); }, [] { range.mutex.unlock(); }, [] { range.mutex.unlock(); });
    return true;
  }
  return false;
}

// With the mutex. Null if there is no memory.
Slab* take_span(std::size_t order) noexcept {
  if (order == 0 && range.kept_free != nullptr) {
    --range.kept_slabs;
    return std::exchange(range.kept_free, range.kept_free->next);
  }
  if (Slab* const span = range.free_spans[order]) {
    range.free_spans[order] = span->next;
    return span;
  }
  if (!reserve_range()) return nullptr;
  const std::size_t bytes = slab_bytes << order;
  if (bytes > range.bytes - range.taken_bytes) return nullptr;
  const std::size_t end = range.taken_bytes + bytes;
  if (end > range.usable_bytes) {
    constexpr std::size_t step = std::size_t{1} << 20;
    const std::size_t usable = std::min((end + step - 1) / step * step, range.bytes);
    if (mprotect(range.begin + range.usable_bytes, usable - range.usable_bytes, PROT_READ | PROT_WRITE) != 0) {
      return nullptr;
    }
    range.usable_bytes = usable;
  }
  return reinterpret_cast<Slab*>(range.begin + std::exchange(range.taken_bytes, end));
}

// With the mutex. All blocks were wiped.
void give_span(Slab* span, std::size_t order) noexcept {
  if (order == 0 && range.kept_slabs < kept_slabs_max) {
    ++range.kept_slabs;
    span->next = std::exchange(range.kept_free, span);
    return;
  }
  if (const std::size_t bytes = slab_bytes << order; bytes > system_page_bytes()) {
    // The first page stays for the head. An error, as with locked memory, leaves the memory in use.
    madvise(reinterpret_cast<std::byte*>(span) + system_page_bytes(), bytes - system_page_bytes(), MADV_DONTNEED);
  }
  span->next = range.free_spans[order];
  range.free_spans[order] = span;
}

void link(Slab* slab) noexcept {
  Slab*& first = range.with_room[slab->kind];
  slab->previous = nullptr;
  slab->next = first;
  if (first != nullptr) first->previous = slab;
  first = slab;
}
void unlink(Slab* slab) noexcept {
  (slab->previous != nullptr ? slab->previous->next : range.with_room[slab->kind]) = slab->next;
  if (slab->next != nullptr) slab->next->previous = slab->previous;
}
bool has_room(const Slab* slab) noexcept {
  return slab->free != nullptr || slab->carved < slab_room / class_bytes[slab->kind];
}

// With the mutex. Null if there is no memory.
FreeBlock* take_block(std::size_t kind) noexcept {
  Slab* slab = range.with_room[kind];
  if (slab == nullptr) {
    slab = take_span(0);
    if (slab == nullptr) return nullptr;
    *slab = {static_cast<std::uint32_t>(kind), 0, 0, nullptr, nullptr, nullptr};
    link(slab);
  }
  FreeBlock* block = slab->free;
  if (block != nullptr) {
    slab->free = block->next;
  } else {
    block = reinterpret_cast<FreeBlock*>(first_block(slab) + std::size_t{class_bytes[kind]} * slab->carved++);
  }
  ++slab->used;
  if (!has_room(slab)) unlink(slab);
  return block;
}

// With the mutex. One empty slab of each class stays.
void give_block(FreeBlock* block) noexcept {
  Slab* const slab = slab_of(block);
  const bool had_room = has_room(slab);
  block->next = slab->free;
  slab->free = block;
  if (!had_room) link(slab);
  if (--slab->used != 0 || (slab->previous == nullptr && slab->next == nullptr)) return;
  unlink(slab);
  give_span(slab, 0);
}

// ---- Blocks that a thread keeps ----

static_assert(kept_blocks_max(0) <= std::numeric_limits<std::uint8_t>::max());
constinit thread_local SecretCache kept;

bool is_buffer(std::size_t kind) noexcept { return kind >= stepped_classes && kind < classes; }

void give_kept(std::size_t kind, std::size_t count) noexcept {
  if (is_buffer(kind)) {
    FreeBlock* block = kept.blocks[kind];
    for (std::size_t i = 0; i < count && block != nullptr; ++i, block = block->next) {
      wipe(block + 1, class_bytes[kind] - sizeof(FreeBlock));
    }
  }
  const std::lock_guard lock(range.mutex);
  for (; count != 0 && kept.blocks[kind] != nullptr; --count) give_block(kept.pop(kind));
}

struct Returning {
  ~Returning() {
    kept.keeping = Keeping::ended;
    for (std::size_t kind = 0; kind < classes; ++kind) give_kept(kind, kept.count(kind));
  }
  void begin() noexcept { kept.keeping = Keeping::yes; }
};

// False if the thread ends.
bool keeps() noexcept {
  if (kept.keeping == Keeping::yes) [[likely]]
    return true;
  if (kept.keeping == Keeping::ended) return false;
  static thread_local Returning returning;
  returning.begin();
  return true;
}

void* allocate_span(std::size_t bytes) noexcept {
  if (bytes > SecretMemory::range_bytes - head_bytes) return nullptr;
  const std::size_t slabs = (bytes + head_bytes + slab_bytes - 1) / slab_bytes;
  const auto order = static_cast<std::size_t>(std::bit_width(slabs - 1));
  if (order >= orders) return nullptr;
  const std::lock_guard lock(range.mutex);
  Slab* const span = take_span(order);
  if (span == nullptr) return nullptr;
  *span = {static_cast<std::uint32_t>(classes + order), 1, 0, nullptr, nullptr, nullptr};
  return first_block(span);
}

void* allocate_slowly(std::size_t kind) noexcept {
  const bool keep = keeps();
  const std::lock_guard lock(range.mutex);
  FreeBlock* const made = take_block(kind);
  if (made == nullptr || !keep) return made;
  for (std::size_t more = kept_blocks_max(kind) / 2 - 1; more != 0; --more) {
    FreeBlock* const block = take_block(kind);
    if (block == nullptr) break;
    kept.push(kind, block);
  }
  return made;
}

// The block was wiped, or is a buffer that this thread keeps.
void deallocate_wiped(void* block) noexcept {
  Slab* const slab = slab_of(block);
  const std::size_t kind = slab->kind;
  if (kind >= classes) {
    const std::lock_guard lock(range.mutex);
    return give_span(slab, kind - classes);
  }
  auto* const free = static_cast<FreeBlock*>(block);
  if (!keeps()) {
    const std::lock_guard lock(range.mutex);
    return give_block(free);
  }
  if (kept.count(kind) >= kept_blocks_max(kind)) give_kept(kind, kept_blocks_max(kind) / 2);
  kept.push(kind, free);
}

}  // namespace

Result<void> SecretMemory::reserve(std::size_t bytes_min) noexcept {
  const std::lock_guard lock(range.mutex);
  const bool reserved = reserve_range();
  if (reserved && range.bytes >= bytes_min) return {};
  return fail(ErrorCode::limit_exceeded,
              "secrets need " + std::to_string(bytes_min >> 20) +
                  " MiB of addresses that core dumps leave out (MADV_DONTDUMP), and the system grants " +
                  std::to_string(range.bytes >> 20) + " MiB (" + std::generic_category().message(range.error) +
                  "): raise the limits of addresses and locked memory (ulimit -v, ulimit -l)");
}

void* SecretMemory::allocate(std::size_t bytes) noexcept {
  const std::size_t kind = class_of(bytes);
  if (kind == classes) return allocate_span(bytes);
  if (kept.blocks[kind] == nullptr) return allocate_slowly(kind);
  return kept.pop(kind);
}

void SecretMemory::deallocate(void* block) noexcept {
  if (block == nullptr) return;
  wipe(block, size_of(block));
  deallocate_wiped(block);
}

void SecretMemory::deallocate_buffer(void* block) noexcept {
  if (block == nullptr) return;
  if (!is_buffer(slab_of(block)->kind) || !keeps()) return deallocate(block);
  deallocate_wiped(block);
}

bool SecretMemory::contains(const void* block) noexcept {
  const std::size_t bytes = range_size.load(std::memory_order_acquire);
  return reinterpret_cast<std::uintptr_t>(block) - range_begin.load(std::memory_order_relaxed) < bytes;
}

std::size_t SecretMemory::size_of(const void* block) noexcept {
  const std::size_t kind = slab_of(block)->kind;
  return kind < classes ? class_bytes[kind] : (slab_bytes << (kind - classes)) - head_bytes;
}

const SecretCache& SecretMemory::local_cache() noexcept { return kept; }

std::size_t SecretMemory::cached_bytes(const SecretCache& cache) noexcept {
  std::size_t bytes = 0;
  for (std::size_t kind = 0; kind < classes; ++kind) bytes += cache.count(kind) * std::size_t{class_bytes[kind]};
  return bytes;
}

std::size_t SecretMemory::cached_bytes_max() noexcept {
  std::size_t bytes = 0;
  for (std::size_t kind = 0; kind < classes; ++kind) bytes += kept_blocks_max(kind) * class_bytes[kind];
  return bytes;
}

void SecretMemory::release_cache() noexcept {
  for (std::size_t kind = 0; kind < classes; ++kind) {
    if (kept.blocks[kind] != nullptr) give_kept(kind, kept.count(kind));
  }
}

void* InSecretMemory::operator new(std::size_t bytes) {
  void* const made = SecretMemory::allocate(bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void* InSecretMemory::operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return SecretMemory::allocate(bytes);
}
void InSecretMemory::operator delete(void* block) noexcept { SecretMemory::deallocate(block); }
void InSecretMemory::operator delete(void* block, const std::nothrow_t&) noexcept { SecretMemory::deallocate(block); }

std::size_t usable_bytes_of_heap(void* block) noexcept { return malloc_usable_size(block); }

void wipe(void* begin, std::size_t bytes) noexcept { explicit_bzero(begin, bytes); }

void wipe(std::string& text) noexcept {
  // The bytes behind the end, too: they may be those of a longer text.
  text.clear();
  wipe(text.data(), text.capacity());
}

}  // namespace hawser
