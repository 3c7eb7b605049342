#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "transport/common/address_range_map.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// The application's memory that devices know (RegisteredBuffer), by address. Registering it takes as long as the kernel
// needs to pin it, a second for some GiB: no lock is held meanwhile. Thread-safe.
class UserMemory : public std::enable_shared_from_this<UserMemory> {
 public:
  // What a device refused is not asked for again before.
  static constexpr Duration refusal_pause = std::chrono::seconds(1);

  // What a connection needs to use a stretch.
  struct Found {
    Block* block = nullptr;  // One reference, the caller's. Null: not known to the device, or not yet.
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
  };
  // Runs the work on a thread that may block, or drops it.
  using Later = std::function<void(std::function<void()> work)>;

  explicit UserMemory(bool relaxed_ordering = false) noexcept : relaxed_ordering_(relaxed_ordering) {}

  // `memory` must not overlap other memory here; `block` counts its users, and lasts until remove().
  Result<void> add(MutableBytes memory, Block& block);
  // Has `device` know the memory that begins there. The error is the device's.
  Result<void> register_with(const std::byte* memory, const std::shared_ptr<Device>& device);
  // Has `device` know all memory that is here; what it refuses is asked for again when it is used.
  void register_all(const std::shared_ptr<Device>& device);
  // No device touches it any more: a transfer that does breaks its connection. Waits for a registration at hand.
  void remove(const std::byte* memory) noexcept;

  // For memory whose owner keeps it meanwhile. What the device does not know is registered by `later`, for the
  // transfers that come then; without `later` at once.
  Found retain(const std::shared_ptr<Device>& device, const std::byte* data, std::size_t bytes,
               const Later& later = {});

  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Registered {
    std::shared_ptr<Device> device;
    std::unique_ptr<MemoryRegion> region;  // Null: refused, or not yet.
    bool busy = false;                     // Somebody registers it.
    Clock::time_point again{};             // Without a region: when a transfer asks for it again.
  };
  struct Entry {
    Block* block = nullptr;
    std::vector<Registered> registered;
    std::size_t busy = 0;  // Of these.
  };

  static Registered& place_of(Entry& entry, const std::shared_ptr<Device>& device);
  Found found_in(Entry& entry, const Registered& place) const noexcept;

  const bool relaxed_ordering_;
  std::mutex mutex_;
  std::condition_variable changed_;  // A registration has ended.
  AddressRangeMap<Entry> entries_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace hawser::transport::rdma
