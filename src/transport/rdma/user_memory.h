#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/rdma/verbs.h"
#include "transport/stretches.h"

namespace hawser::transport::rdma {

// The application's memory that devices know (RegisteredBuffer), by address: registered with a device when that first
// sends from it or receives into it, unless before. Thread-safe.
class UserMemory {
 public:
  // What a connection needs to use a stretch.
  struct Found {
    Block* block = nullptr;  // One reference, the caller's. Null: not known, or the device refused it.
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
  };

  // `memory` must not overlap other memory here; `block` counts its users, and lasts until remove().
  Result<void> add(MutableBytes memory, Block& block);
  // Has `device` know it now. The error is the device's.
  Result<void> register_with(const std::byte* memory, const std::shared_ptr<Device>& device);
  // No device touches it any more: a transfer that does breaks its connection.
  void remove(const std::byte* memory) noexcept;

  // For memory whose owner keeps it meanwhile.
  Found retain(const std::shared_ptr<Device>& device, const std::byte* data, std::size_t bytes) noexcept;

  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Registered {
    std::shared_ptr<Device> device;
    std::unique_ptr<MemoryRegion> region;  // Null: refused.
  };
  struct Entry {
    Block* block = nullptr;
    std::vector<Registered> registered;
  };

  static Result<MemoryRegion*> find_or_register(MutableBytes memory, Entry& entry,
                                                const std::shared_ptr<Device>& device);

  std::mutex mutex_;
  Stretches<Entry> entries_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace hawser::transport::rdma
