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

#include "base/external_block.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/user_memory.h"

namespace hawser::transport::rdma {

// A stretch of registered memory. Its keys are those of its region.
struct RegisteredMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
};

struct MemoryPoolOptions {
  std::size_t bytes_max = std::size_t{4} << 30;     // Registered in all.
  std::size_t arena_bytes = std::size_t{16} << 20;  // At least; a power of two.
  bool huge_pages = true;
  bool relaxed_ordering = false;  // As Access has it.
  UserMemory::Later later = {};   // Has a thread that may block register the application's memory.
  Duration idle_timeout = std::chrono::seconds(10);
};

struct MemoryPoolCounters {
  std::size_t registered_bytes = 0;
  std::size_t used_bytes = 0;
  std::size_t used_bytes_max = 0;  // High water.
  std::uint64_t refused = 0;       // Asked for at the watermark.
  // Payloads that went without a copy from the application's registered memory, and into it.
  std::uint64_t user_sends = 0;
  std::uint64_t user_receives = 0;
};

// Memory registered with one device: arenas, registered once and carved by halving into stretches of 4 KiB and more, at
// multiples of their size. Thread-safe. Kept by whoever holds memory of it.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  static constexpr std::size_t bytes_min = 4096;
  // Of bytes_max, what payloads may use up: the rest is kept for the chunks that connections need to go on.
  static constexpr double payload_share = 0.75;

  static constexpr std::size_t spare_loaned_max = 64;

  // What peers may read lies in arenas of its own, apart from the chunks that connections receive into and send from.
  enum class Use : std::uint8_t { connection, payload };

  // `user` is the memory that the application has registered, if any.
  MemoryPool(std::shared_ptr<Device> device, MemoryPoolOptions options, std::shared_ptr<UserMemory> user = nullptr);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  // At least so many bytes. What is free is taken; else an arena is registered, which takes long, and without a lock.
  // The error says which bound was hit, or why the device refused.
  Result<RegisteredMemory> acquire(std::size_t bytes, Use use);
  void release(const RegisteredMemory& memory) noexcept;
  // Registers what those stretches need beside what is free, which takes long: for a thread that may block, so that
  // acquire() need not. Others may take it before.
  Result<void> make_room(std::span<const std::size_t> stretches, Use use);

  // A payload's buffer: goes back to the pool by itself. Null when there is no room.
  struct PayloadBlock {
    Block* block = nullptr;  // One reference, the caller's.
    RegisteredMemory memory;
    bool user = false;  // It is the application's.
  };
  PayloadBlock acquire_block(std::size_t bytes);
  // The block whose memory [data, data + bytes) lies in, the pool's or the application's, with one reference more, or
  // nothing.
  PayloadBlock retain(const std::byte* data, std::size_t bytes) noexcept;
  // The same of the application's memory only.
  PayloadBlock find_user(std::byte* data, std::size_t bytes) noexcept;
  // As a payload is to be received into.
  PayloadBlock retain_user(std::byte* data, std::size_t bytes) noexcept;

  // Counts payloads that are read before it is their turn: at most ahead_share of bytes_max in all. False: no more for
  // now.
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

  // Gives back arenas that nobody has used for idle_timeout.
  void reclaim(Time now);
  // Whether reclaim() would return memory now. Allocates nothing, so that a loop may ask often.
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
  std::vector<std::unique_ptr<Arena>> arenas_;  // By address.
  MemoryPoolCounters counters_;
  std::vector<std::unique_ptr<LoanedBlock>> spare_loaned_;  // For further payloads, so that the steady state allocates
                                                            // nothing.
};

}  // namespace hawser::transport::rdma
