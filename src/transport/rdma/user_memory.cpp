#include "transport/rdma/user_memory.h"

#include <algorithm>
#include <iterator>

namespace hawser::transport::rdma {

Result<void> UserMemory::add(MutableBytes memory, Block& block) {
  const std::lock_guard lock(mutex_);
  const auto after = entries_.lower_bound(memory.data());
  const bool over_next = after != entries_.end() && after->first < memory.data() + memory.size();
  const bool over_last =
      after != entries_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > memory.data();
  if (over_next || over_last) {
    return fail(ErrorCode::invalid_argument, "this memory, or a part of it, is registered already");
  }
  entries_.emplace(memory.data(), Entry{.bytes = memory.size(), .block = &block, .registered = {}});
  bytes_.fetch_add(memory.size(), std::memory_order_relaxed);
  return {};
}

Result<MemoryRegion*> UserMemory::find_or_register(const std::byte* memory, Entry& entry,
                                                   const std::shared_ptr<Device>& device) {
  const auto known = std::find_if(entry.registered.begin(), entry.registered.end(),
                                  [&](const Registered& one) { return one.device == device; });
  if (known != entry.registered.end()) return known->region.get();
  auto region = device->register_memory({const_cast<std::byte*>(memory), entry.bytes}, {.remote_read = true});
  // Asked once: a device that refuses it would be asked by every transfer.
  entry.registered.push_back({device, region ? std::move(*region) : nullptr});
  if (!region) return std::unexpected(std::move(region.error()));
  return entry.registered.back().region.get();
}

Result<void> UserMemory::register_with(const std::byte* memory, const std::shared_ptr<Device>& device) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(memory);
  const auto region = find_or_register(memory, at->second, device);
  if (!region) return std::unexpected(region.error());
  return {};
}

void UserMemory::remove(const std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(memory);
  bytes_.fetch_sub(at->second.bytes, std::memory_order_relaxed);
  entries_.erase(at);
}

UserMemory::Found UserMemory::retain(const std::shared_ptr<Device>& device, const std::byte* data,
                                     std::size_t bytes) noexcept {
  if (bytes_.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(mutex_);
  auto at = entries_.upper_bound(data);
  if (at == entries_.begin()) return {};
  --at;
  Entry& entry = at->second;
  const auto offset = static_cast<std::size_t>(data - at->first);
  if (offset >= entry.bytes || bytes > entry.bytes - offset) return {};
  const auto region = find_or_register(at->first, entry, device);
  if (!region || *region == nullptr) return {};
  entry.block->retain();
  return {entry.block, (*region)->local_key(), (*region)->remote_key()};
}

}  // namespace hawser::transport::rdma
