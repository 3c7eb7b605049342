#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/common/address_range_map.h"

namespace hawser::transport {

// Registered memory of the application (RegisteredBuffer), which stays until nobody uses it. UCX may send from it and
// receive into it, because UCX cannot abort an operation before it completes. Thread-safe.
class UcxMemory {
 public:
  // `block` keeps the memory and must live until remove().
  Result<void> add(MutableBytes memory, Block& block) {
    const std::lock_guard lock(mutex_);
    auto added = entries_.add(memory, &block);
    if (added) bytes_.store(entries_.bytes(), std::memory_order_relaxed);
    return added;
  }
  void remove(const std::byte* memory) noexcept {
    const std::lock_guard lock(mutex_);
    entries_.remove(memory);
    bytes_.store(entries_.bytes(), std::memory_order_relaxed);
  }

  // Returns the block that keeps [data, data + bytes), with one more reference, or null if the range is not registered.
  // The caller must ensure that the memory stays registered during the call.
  Block* retain_to_send(const std::byte* data, std::size_t bytes) noexcept { return retain(data, bytes, sends_); }
  Block* retain_to_receive(const std::byte* data, std::size_t bytes) noexcept { return retain(data, bytes, receives_); }

  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t sends() const noexcept { return sends_.load(std::memory_order_relaxed); }
  std::uint64_t receives() const noexcept { return receives_.load(std::memory_order_relaxed); }

 private:
  Block* retain(const std::byte* data, std::size_t bytes, std::atomic<std::uint64_t>& count) noexcept {
    if (bytes_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(data, bytes);
    if (found.entry == nullptr) return nullptr;
    Block* const block = *found.entry;
    block->retain();
    count.fetch_add(1, std::memory_order_relaxed);
    return block;
  }

  std::mutex mutex_;
  AddressRangeMap<Block*> entries_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::uint64_t> sends_{0};
  std::atomic<std::uint64_t> receives_{0};
};

}  // namespace hawser::transport
