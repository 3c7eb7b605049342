#include "transport/rdma/user_memory.h"

#include <algorithm>

namespace hawser::transport::rdma {

Result<void> UserMemory::add(MutableBytes memory, Block& block) {
  const std::lock_guard lock(mutex_);
  auto added = entries_.add(memory, Entry{.block = &block, .registered = {}});
  if (added) bytes_.store(entries_.bytes(), std::memory_order_relaxed);
  return added;
}

Result<MemoryRegion*> UserMemory::find_or_register(MutableBytes memory, Entry& entry,
                                                   const std::shared_ptr<Device>& device) {
  const auto known = std::find_if(entry.registered.begin(), entry.registered.end(),
                                  [&](const Registered& one) { return one.device == device; });
  if (known != entry.registered.end()) return known->region.get();
  auto region = device->register_memory(memory, {.remote_read = true});
  // Asked once: a device that refuses it would be asked by every transfer.
  entry.registered.push_back({device, region ? std::move(*region) : nullptr});
  if (!region) return std::unexpected(std::move(region.error()));
  return entry.registered.back().region.get();
}

Result<void> UserMemory::register_with(const std::byte* memory, const std::shared_ptr<Device>& device) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(memory, 0);
  const auto region = find_or_register(found.memory, *found.entry, device);
  if (!region) return std::unexpected(region.error());
  return {};
}

void UserMemory::remove(const std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  entries_.remove(memory);
  bytes_.store(entries_.bytes(), std::memory_order_relaxed);
}

UserMemory::Found UserMemory::retain(const std::shared_ptr<Device>& device, const std::byte* data,
                                     std::size_t bytes) noexcept {
  if (bytes_.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(data, bytes);
  if (found.entry == nullptr) return {};
  const auto region = find_or_register(found.memory, *found.entry, device);
  if (!region || *region == nullptr) return {};
  found.entry->block->retain();
  return {found.entry->block, (*region)->local_key(), (*region)->remote_key()};
}

}  // namespace hawser::transport::rdma
