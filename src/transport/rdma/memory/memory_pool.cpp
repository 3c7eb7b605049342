#include "transport/rdma/memory/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "base/try.h"
#include "heap/allocation_hook.h"

namespace hawser::transport::rdma {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::uint32_t none = UINT32_MAX;
constexpr std::int8_t not_free = -1;

unsigned order_of(std::size_t bytes) noexcept {
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(std::max(bytes, MemoryPool::bytes_min)))) -
         static_cast<unsigned>(std::countr_zero(MemoryPool::bytes_min));
}

}  // namespace

// The block of a payload. It counts the references to the payload's memory.
class MemoryPool::LoanedBlock final : public ExternalBlock {
 public:
  LoanedBlock() noexcept : ExternalBlock(&LoanedBlock::returned) {}
  // The block starts with one reference.
  void loan(std::shared_ptr<MemoryPool> pool, const RegisteredMemory& memory) noexcept {
    ExternalBlock::loan();
    pool_ = std::move(pool);
    memory_ = memory;
  }
  const RegisteredMemory& memory() const noexcept { return memory_; }

  // Adds a reference unless another thread is dropping the last one at this moment.
  using ExternalBlock::retain;

 private:
  static void returned(ExternalBlock& block) noexcept {
    LoanedBlock* const self = static_cast<LoanedBlock*>(&block);
    const std::shared_ptr<MemoryPool> pool = std::move(self->pool_);
    pool->reclaim(*self);
  }

  std::shared_ptr<MemoryPool> pool_;
  RegisteredMemory memory_;
};

// Memory that is halved repeatedly, down to pages of bytes_min. The first page identifies a free range of 2^order
// pages.
struct MemoryPool::Arena {
  static constexpr unsigned orders = 24;

  Arena(std::byte* memory, std::size_t size, Use purpose)
      : use(purpose),
        base(memory),
        bytes(size),
        pages(size / bytes_min),
        order(order_of(size)),
        free_order(pages, not_free),
        next(pages, none),
        previous(pages, none),
        loaned(pages, nullptr) {
    first.fill(none);
    push(0, order);
  }

  void push(std::uint32_t page, unsigned at) noexcept {
    free_order[page] = static_cast<std::int8_t>(at);
    previous[page] = none;
    next[page] = first[at];
    if (first[at] != none) previous[first[at]] = page;
    first[at] = page;
  }
  void remove(std::uint32_t page, unsigned at) noexcept {
    free_order[page] = not_free;
    if (previous[page] != none) next[previous[page]] = next[page];
    if (next[page] != none) previous[next[page]] = previous[page];
    if (first[at] == page) first[at] = next[page];
  }
  std::uint32_t acquire(unsigned wanted) noexcept {
    unsigned at = wanted;
    while (at <= order && first[at] == none) ++at;
    if (at > order) return none;
    const std::uint32_t page = first[at];
    remove(page, at);
    while (at > wanted) {
      --at;
      push(page + (1U << at), at);
    }
    return page;
  }
  // Returns the size of the free ranges of order `least` and above. Counting stops at `enough`.
  std::size_t free_bytes(unsigned least, std::size_t enough) const noexcept {
    std::size_t bytes_free = 0;
    for (unsigned at = order + 1; at-- > least;) {
      for (std::uint32_t page = first[at]; page != none && bytes_free < enough; page = next[page]) {
        bytes_free += bytes_min << at;
      }
    }
    return bytes_free;
  }
  void release(std::uint32_t page, unsigned at) noexcept {
    while (at < order) {
      const std::uint32_t buddy = page ^ (1U << at);
      if (free_order[buddy] != static_cast<std::int8_t>(at)) break;
      remove(buddy, at);
      page = std::min(page, buddy);
      ++at;
    }
    push(page, at);
  }

  const Use use;
  std::byte* const base;
  const std::size_t bytes;
  const std::size_t pages;
  const unsigned order;
  std::unique_ptr<MemoryRegion> region;
  std::vector<std::int8_t> free_order;  // Indexed by the first page of a free range.
  std::vector<std::uint32_t> next, previous;
  std::vector<LoanedBlock*> loaned;  // Indexed by the first page of a payload's range.
  std::array<std::uint32_t, orders> first{};
  std::size_t used = 0;
  bool idle_seen = false;
  Time idle_since{};
};

MemoryPool::MemoryPool(std::shared_ptr<Device> device, MemoryPoolOptions options, std::shared_ptr<UserMemory> user)
    : device_(std::move(device)), options_(options), user_(std::move(user)) {}

MemoryPool::~MemoryPool() {
  for (auto& arena : arenas_) {
    arena->region.reset();
    unmap(arena->base, arena->bytes);
  }
}

void MemoryPool::unmap(std::byte* memory, std::size_t bytes) noexcept {
  detail::allocation_hook::freed(memory);
  ::munmap(memory, bytes);
}

// Counts the bytes as registered.
Result<std::size_t> MemoryPool::reserve_arena(std::size_t bytes) {
  // A pool with a small bound also has room for several arenas.
  const std::size_t usual = std::min(std::bit_ceil(options_.arena_bytes), std::bit_floor(options_.bytes_max / 4));
  bytes = std::max(usual, bytes);
  if (counters_.registered_bytes + bytes > options_.bytes_max) {
    ++counters_.refused;
    return fail(Error::of_transport(ErrorCode::overloaded,
                                    "memory_bytes_max (" + std::to_string(options_.bytes_max) +
                                        ") of RDMA memory is registered on " + device_->name() +
                                        ": raise RdmaOptions::memory_bytes_max, or use fewer or smaller chunks"));
  }
  counters_.registered_bytes += bytes;
  return bytes;
}

Result<std::unique_ptr<MemoryPool::Arena>> MemoryPool::make_arena(std::size_t bytes, Use use) {
  // Maps more than is needed, so that a range that starts at a multiple of a huge page can be kept.
  const std::size_t mapped = bytes + huge_page_bytes;
  void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(
        Error::of_transport(ErrorCode::overloaded, std::string("mapping RDMA memory: ") + std::strerror(errno)));
  }
  std::byte* const start = static_cast<std::byte*>(memory);
  const std::size_t skipped =
      (huge_page_bytes - reinterpret_cast<std::uintptr_t>(start) % huge_page_bytes) % huge_page_bytes;
  std::byte* const base = start + skipped;
  if (skipped != 0) ::munmap(start, skipped);
  if (skipped != huge_page_bytes) ::munmap(base + bytes, huge_page_bytes - skipped);
  if (options_.huge_pages) ::madvise(base, bytes, MADV_HUGEPAGE);
  detail::allocation_hook::allocated(base, bytes, __builtin_return_address(0));
  try {
    auto arena = std::make_unique<Arena>(base, bytes, use);
    auto region = device_->register_memory(
        MutableBytes(base, bytes), {.remote_read = use == Use::payload, .relaxed_ordering = options_.relaxed_ordering});
    if (region) {
      arena->region = std::move(*region);
      return arena;
    }
    unmap(base, bytes);
    return fail(std::move(region.error()));
  } catch (const std::bad_alloc&) {
    unmap(base, bytes);
    return fail(Error::of_transport(ErrorCode::overloaded, "no memory"));
  }
}

// Registers without holding the lock, so that threads that find memory in another arena do not wait. `lock` is held
// when this returns.
Result<MemoryPool::Arena*> MemoryPool::add_arena(std::unique_lock<std::mutex>& lock, std::size_t bytes, Use use) {
  TRY(const auto& reserved, reserve_arena(bytes));
  lock.unlock();
  auto arena = make_arena(reserved, use);
  lock.lock();
  if (!arena) {
    counters_.registered_bytes -= reserved;
    return fail(std::move(arena.error()));
  }
  const auto place = std::lower_bound(arenas_.begin(), arenas_.end(), (*arena)->base,
                                      [](const auto& other, const std::byte* at) { return other->base < at; });
  return arenas_.insert(place, std::move(*arena))->get();
}

RegisteredMemory MemoryPool::carve(Arena& arena, unsigned order) noexcept {
  const std::uint32_t page = arena.acquire(order);
  if (page == none) return {};
  const std::size_t bytes = bytes_min << order;
  arena.used += bytes;
  arena.idle_seen = false;
  counters_.used_bytes += bytes;
  counters_.used_bytes_max = std::max(counters_.used_bytes_max, counters_.used_bytes);
  return {arena.base + page * bytes_min, bytes, arena.region->local_key(), arena.region->remote_key()};
}

RegisteredMemory MemoryPool::acquire_there(unsigned order, Use use) noexcept {
  for (const auto& arena : arenas_) {
    if (arena->use != use || arena->order < order) continue;
    if (const RegisteredMemory memory = carve(*arena, order); memory.data != nullptr) return memory;
  }
  return {};
}

Result<RegisteredMemory> MemoryPool::acquire(std::size_t bytes, Use use) {
  const unsigned order = order_of(bytes);
  std::unique_lock lock(mutex_);
  if (use == Use::payload && static_cast<double>(counters_.used_bytes + (bytes_min << order)) >
                                 static_cast<double>(options_.bytes_max) * payload_share) {
    ++counters_.refused;
    return fail(Error::of_transport(ErrorCode::overloaded, "payloads use up their share of memory_bytes_max"));
  }
  if (const RegisteredMemory memory = acquire_there(order, use); memory.data != nullptr) return memory;
  const auto arena = add_arena(lock, bytes_min << order, use);
  if (arena) return carve(**arena, order);
  // Meanwhile another thread may have added an arena or released memory.
  if (const RegisteredMemory memory = acquire_there(order, use); memory.data != nullptr) return memory;
  return fail(arena.error());
}

Result<void> MemoryPool::make_room(std::span<const std::size_t> stretches, Use use) {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::size_t wanted = 0;
    for (const std::size_t bytes : stretches) wanted += bytes_min << order_of(bytes);
    // Halving uses free ranges that are at least as long as the longest range completely.
    const unsigned longest = order_of(*std::max_element(stretches.begin(), stretches.end()));
    std::size_t there = 0;
    for (const auto& arena : arenas_) {
      if (arena->use == use) there += arena->free_bytes(longest, wanted);
    }
    if (there >= wanted) return {};
    TRY(add_arena(lock, bytes_min << longest, use));
  }
}

void MemoryPool::release(const RegisteredMemory& memory) noexcept {
  const std::lock_guard lock(mutex_);
  Arena* const arena = find(memory.data);
  assert(arena != nullptr);
  const auto page = static_cast<std::uint32_t>(static_cast<std::size_t>(memory.data - arena->base) / bytes_min);
  arena->loaned[page] = nullptr;
  arena->release(page, order_of(memory.bytes));
  arena->used -= memory.bytes;
  counters_.used_bytes -= memory.bytes;
}

MemoryPool::Arena* MemoryPool::find(const std::byte* data) noexcept {
  auto after = std::upper_bound(arenas_.begin(), arenas_.end(), data,
                                [](const std::byte* at, const auto& other) { return at < other->base; });
  if (after == arenas_.begin()) return nullptr;
  Arena* const arena = std::prev(after)->get();
  return data < arena->base + arena->bytes ? arena : nullptr;
}

MemoryPool::PayloadBlock MemoryPool::acquire_block(std::size_t bytes) {
  const auto memory = acquire(bytes, Use::payload);
  if (!memory) return {};
  const std::lock_guard lock(mutex_);
  LoanedBlock* loaned = nullptr;
  if (spare_loaned_.empty()) {
    loaned = new LoanedBlock;
  } else {
    loaned = spare_loaned_.back().release();
    spare_loaned_.pop_back();
  }
  loaned->loan(shared_from_this(), *memory);
  Arena* const arena = find(memory->data);
  arena->loaned[static_cast<std::size_t>(memory->data - arena->base) / bytes_min] = loaned;
  return {loaned, *memory, false};
}

void MemoryPool::reclaim(LoanedBlock& loaned) noexcept {
  release(loaned.memory());
  const std::lock_guard lock(mutex_);
  if (spare_loaned_.size() < spare_loaned_max) {
    spare_loaned_.emplace_back(&loaned);
  } else {
    delete &loaned;
  }
}

MemoryPool::PayloadBlock MemoryPool::retain(const std::byte* data, std::size_t bytes) noexcept {
  if (const PayloadBlock own = retain_own(data, bytes); own.block != nullptr) return own;
  if (user_ == nullptr) return {};
  const UserMemory::Found found = user_->retain(device_, data, bytes, options_.later);
  if (found.block == nullptr) return {};
  return {found.block, {const_cast<std::byte*>(data), bytes, found.local_key, found.remote_key}, true};
}

MemoryPool::PayloadBlock MemoryPool::find_user(std::byte* data, std::size_t bytes) noexcept {
  if (user_ == nullptr) return {};
  const UserMemory::Found found = user_->retain(device_, data, bytes, options_.later);
  if (found.block == nullptr) return {};
  return {found.block, {data, bytes, found.local_key, found.remote_key}, true, found.dmabuf};
}

MemoryPool::PayloadBlock MemoryPool::find_user_block(std::byte* data) noexcept {
  if (user_ == nullptr) return {};
  const UserMemory::Found found = user_->retain(device_, data, 1, options_.later);
  if (found.block == nullptr) return {};
  return {
      found.block, {found.memory.data(), found.memory.size(), found.local_key, found.remote_key}, true, found.dmabuf};
}

MemoryPool::PayloadBlock MemoryPool::retain_user(std::byte* data, std::size_t bytes) noexcept {
  const PayloadBlock found = find_user(data, bytes);
  if (found.block != nullptr) user_receives_.fetch_add(1, std::memory_order_relaxed);
  return found;
}

MemoryPool::PayloadBlock MemoryPool::retain_own(const std::byte* data, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Arena* const arena = find(data);
  if (arena == nullptr) return {};
  const std::size_t page = static_cast<std::size_t>(data - arena->base) / bytes_min;
  for (unsigned order = 0; order <= arena->order; ++order) {
    LoanedBlock* const loaned = arena->loaned[page & ~((std::size_t{1} << order) - 1)];
    if (loaned == nullptr) continue;
    const RegisteredMemory& memory = loaned->memory();
    if (data < memory.data || data + bytes > memory.data + memory.bytes) continue;
    // The sender holds a reference to the block, so the count cannot be dropping to 0.
    loaned->retain();
    return {loaned, memory, false};
  }
  return {};
}

// True if nothing of the arena has been used for idle_timeout.
bool MemoryPool::is_idle(Arena& arena, Time now) const noexcept {
  if (arena.used != 0) return false;
  if (!arena.idle_seen) {
    arena.idle_seen = true;
    arena.idle_since = now;
  }
  return now - arena.idle_since >= options_.idle_timeout;
}

bool MemoryPool::reclaim_is_due(Time now) {
  const std::lock_guard lock(mutex_);
  bool due = false;
  for (const auto& arena : arenas_) due = is_idle(*arena, now) || due;
  return due;
}

void MemoryPool::reclaim(Time now) {
  std::vector<std::unique_ptr<Arena>> gone;  // Deregistered without holding the lock.
  {
    const std::lock_guard lock(mutex_);
    for (auto& arena : arenas_) {
      if (is_idle(*arena, now)) gone.push_back(std::move(arena));
    }
    std::erase(arenas_, nullptr);
  }
  for (const auto& arena : gone) {
    arena->region.reset();
    unmap(arena->base, arena->bytes);
    const std::lock_guard lock(mutex_);
    counters_.registered_bytes -= arena->bytes;
  }
}

MemoryPoolCounters MemoryPool::counters() const {
  const std::lock_guard lock(mutex_);
  MemoryPoolCounters counters = counters_;
  counters.user_sends = user_sends_.load(std::memory_order_relaxed);
  counters.user_receives = user_receives_.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace hawser::transport::rdma
