#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "heap/external_block.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/user_memory.h"

namespace hawser::transport::rdma {

// A range of registered memory. Its keys are those of its region.
struct RegisteredMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
};

struct MemoryPoolOptions {
  std::size_t bytes_max = std::size_t{4} << 30;     // Limit of all registered bytes.
  std::size_t arena_bytes = std::size_t{16} << 20;  // Minimum size of an arena; a power of two.
  bool huge_pages = true;
  bool relaxed_ordering = false;  // As in Access.
  UserMemory::Later later = {};   // Runs the registration of the application's memory on a thread that may block.
  Duration idle_timeout = std::chrono::seconds(10);
};

struct MemoryPoolCounters {
  std::size_t registered_bytes = 0;
  std::size_t used_bytes = 0;
  std::size_t used_bytes_max = 0;  // High watermark of the used bytes.
  std::uint64_t refused = 0;       // Requests that the limit refused.
  // Payloads that were sent from, and received into, the application's registered memory without a copy.
  std::uint64_t user_sends = 0;
  std::uint64_t user_receives = 0;
};

// Memory that is registered with one device. It consists of arenas, each registered once and divided by halving into
// ranges of 4 KiB and more, at multiples of their size. Thread-safe. Whoever holds memory of the pool keeps the pool
// alive.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  static constexpr std::size_t bytes_min = 4096;
  // Payloads may use this share of bytes_max. The rest is kept for the chunks that connections need to make progress.
  static constexpr double payload_share = 0.75;

  static constexpr std::size_t spare_loaned_max = 64;

  // Memory that peers may read lies in arenas of its own, apart from the chunks that connections receive into and send
  // from.
  enum class Use : std::uint8_t { connection, payload };

  // `user` is the memory that the application has registered; null if there is none.
  MemoryPool(std::shared_ptr<Device> device, MemoryPoolOptions options, std::shared_ptr<UserMemory> user = nullptr);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  // Returns at least `bytes` bytes. If no free memory is found, an arena is registered. This takes long and does not
  // hold the lock. The error names the bound that was reached, or the device's reason for refusing.
  Result<RegisteredMemory> acquire(std::size_t bytes, Use use);
  void release(const RegisteredMemory& memory) noexcept;
  // Registers the memory that these ranges need in addition to the free memory. This takes long, so it runs on a thread
  // that may block, and acquire() does not have to register. Other threads may acquire the memory before.
  Result<void> make_room(std::span<const std::size_t> stretches, Use use);

  // Buffer for a payload. It returns to the pool when its last reference is dropped. Null when there is no room.
  struct PayloadBlock {
    Block* block = nullptr;  // The caller owns one reference.
    RegisteredMemory memory;
    bool user = false;    // True for memory of the application,
    bool dmabuf = false;  // and for such memory that the processor cannot access.
  };
  PayloadBlock acquire_block(std::size_t bytes);
  // Returns the block that holds [data, data + bytes), of the pool or of the application, with an additional reference.
  // Nothing if no block holds it.
  PayloadBlock retain(const std::byte* data, std::size_t bytes) noexcept;
  // The same, but only for memory of the application.
  PayloadBlock find_user(std::byte* data, std::size_t bytes) noexcept;
  // All memory of the application's block that holds `data`, with the block.
  PayloadBlock find_user_block(std::byte* data) noexcept;
  // The same as find_user(), for memory into which a payload will be received.
  PayloadBlock retain_user(std::byte* data, std::size_t bytes) noexcept;

  // Counts bytes of payloads that are read before their turn: at most ahead_share of bytes_max in total. False: no more
  // bytes may be read ahead now.
  static constexpr double ahead_share = 0.125;
  bool begin_ahead(std::size_t bytes) noexcept {
    const std::size_t before = ahead_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (static_cast<double>(before + bytes) <= ahead_share * static_cast<double>(options_.bytes_max)) return true;
    end_ahead(bytes);
    return false;
  }
  void end_ahead(std::size_t bytes) noexcept { ahead_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_.load(std::memory_order_relaxed); }

  void count_user_send() noexcept { user_sends_.fetch_add(1, std::memory_order_relaxed); }

  // Releases arenas that have not been used for idle_timeout.
  void reclaim(Time now);
  // True if reclaim() would release memory now. It allocates nothing, so a loop may call it often.
  bool reclaim_is_due(Time now);
  MemoryPoolCounters counters() const;
  Device& device() const noexcept { return *device_; }
  const std::shared_ptr<Device>& shared_device() const noexcept { return device_; }

 private:
  class LoanedBlock;
  struct Arena;

  static void unmap(std::byte* memory, std::size_t bytes) noexcept;
  Result<std::size_t> reserve_arena(std::size_t bytes);
  Result<std::unique_ptr<Arena>> make_arena(std::size_t bytes, Use use);
  Result<Arena*> add_arena(std::unique_lock<std::mutex>& lock, std::size_t bytes, Use use);
  RegisteredMemory acquire_there(unsigned order, Use use) noexcept;
  RegisteredMemory carve(Arena& arena, unsigned order) noexcept;
  Arena* find(const std::byte* data) noexcept;
  bool is_idle(Arena& arena, Time now) const noexcept;
  PayloadBlock retain_own(const std::byte* data, std::size_t bytes) noexcept;
  void reclaim(LoanedBlock& loaned) noexcept;

  const std::shared_ptr<Device> device_;
  const MemoryPoolOptions options_;
  const std::shared_ptr<UserMemory> user_;
  std::atomic<std::uint64_t> user_sends_{0};
  std::atomic<std::uint64_t> user_receives_{0};
  std::atomic<std::size_t> ahead_bytes_{0};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;  // Sorted by address.
  MemoryPoolCounters counters_;
  // Kept for later payloads, so that the steady state allocates nothing.
  std::vector<std::unique_ptr<LoanedBlock>> spare_loaned_;
};

}  // namespace hawser::transport::rdma
