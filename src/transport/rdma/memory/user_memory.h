#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "hawser/transport/transport.h"
#include "transport/common/address_range_map.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// Memory that the application registered with devices (RegisteredBuffer), sorted by address. Registering takes as long
// as the kernel needs to pin the memory, about a second for some GiB, and does not hold the lock. Thread-safe.
class UserMemory : public std::enable_shared_from_this<UserMemory> {
 public:
  // Pause after which a device that refused memory is asked again.
  static constexpr Duration refusal_pause = std::chrono::seconds(1);

  // The block and keys that a connection needs to use a range.
  struct Found {
    // The caller owns one reference. Null: the device has not registered the memory, or not yet.
    Block* block = nullptr;
    MutableBytes memory;  // All memory of the block.
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
    bool dmabuf = false;  // The processor cannot access the memory.
  };
  // Runs the work on a thread that may block, or drops it.
  using Later = std::function<void(std::function<void()> work)>;

  explicit UserMemory(bool relaxed_ordering = false) noexcept : relaxed_ordering_(relaxed_ordering) {}

  // Adds `memory`, which must not overlap other memory here. `block` counts its users and lives until remove().
  Result<void> add(MutableBytes memory, Block& block) { return add(memory, block, std::nullopt); }
  // The same for memory behind a descriptor, which remains open until remove(). Peers cannot read it as a payload.
  Result<void> add(const DmabufMemory& memory, Block& block) { return add(memory.addresses, block, memory); }
  // Registers the memory that begins at `memory` with `device`. The error is that of the device.
  Result<void> register_with(const std::byte* memory, const std::shared_ptr<Device>& device);
  // Registers all memory with `device`. Memory that the device refuses is registered again when it is used.
  void register_all(const std::shared_ptr<Device>& device);
  // Deregisters the memory from all devices, so that none accesses it any more. A transfer that still tries to breaks
  // its connection. Waits for a registration in progress.
  void remove(const std::byte* memory) noexcept;

  // Returns the memory's block and keys; the caller keeps the memory alive meanwhile. If the device has not registered
  // the memory, `later` registers it for later transfers. Without `later` it is registered at once.
  Found retain(const std::shared_ptr<Device>& device, const std::byte* data, std::size_t bytes,
               const Later& later = {});

  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Registered {
    std::shared_ptr<Device> device;
    std::unique_ptr<MemoryRegion> region;  // Null: refused, or not registered yet.
    bool busy = false;                     // A thread is registering it.
    Clock::time_point again{};  // If `region` is null, the earliest time at which a transfer requests it again.
  };
  struct Entry {
    Block* block = nullptr;
    std::optional<DmabufMemory> dmabuf;
    std::vector<Registered> registered;
    std::size_t busy = 0;  // Number of entries that are busy.
  };

  Result<void> add(MutableBytes memory, Block& block, const std::optional<DmabufMemory>& dmabuf);
  Result<std::unique_ptr<MemoryRegion>> register_entry(Device& device, MutableBytes memory,
                                                       const std::optional<DmabufMemory>& dmabuf) const;
  static Registered& place_of(Entry& entry, const std::shared_ptr<Device>& device);
  static Found found_in(Entry& entry, MutableBytes memory, const Registered& place) noexcept;

  const bool relaxed_ordering_;
  std::mutex mutex_;
  std::condition_variable changed_;  // Notified when a registration has ended.
  AddressRangeMap<Entry> entries_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace hawser::transport::rdma
