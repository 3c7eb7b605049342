#include "transport/rdma/memory/user_memory.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hawser::transport::rdma {

Result<void> UserMemory::add(MutableBytes memory, Block& block, const std::optional<DmabufMemory>& dmabuf) {
  const std::lock_guard lock(mutex_);
  Entry entry;
  entry.block = &block;
  entry.dmabuf = dmabuf;
  auto added = entries_.add(memory, std::move(entry));
  if (added) bytes_.store(entries_.bytes(), std::memory_order_relaxed);
  return added;
}

Result<std::unique_ptr<MemoryRegion>> UserMemory::register_entry(Device& device, MutableBytes memory,
                                                                 const std::optional<DmabufMemory>& dmabuf) const {
  if (dmabuf) {
    return device.register_dmabuf(dmabuf->descriptor, dmabuf->offset, memory, {.relaxed_ordering = relaxed_ordering_});
  }
  return device.register_memory(memory, {.remote_read = true, .relaxed_ordering = relaxed_ordering_});
}

UserMemory::Registered& UserMemory::place_of(Entry& entry, const std::shared_ptr<Device>& device) {
  const auto known = std::find_if(entry.registered.begin(), entry.registered.end(),
                                  [&](const Registered& one) { return one.device == device; });
  if (known != entry.registered.end()) return *known;
  entry.registered.emplace_back().device = device;
  return entry.registered.back();
}

Result<void> UserMemory::register_with(const std::byte* memory, const std::shared_ptr<Device>& device) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = entries_.find(memory, 0);
    if (found.entry == nullptr || found.memory.data() != memory) {
      return fail(ErrorCode::unavailable, "the memory is not registered any more");
    }
    Registered& place = place_of(*found.entry, device);
    if (place.region != nullptr) return {};
    if (place.busy) {
      changed_.wait(lock);
      continue;
    }
    place.busy = true;
    ++found.entry->busy;
    const std::optional<DmabufMemory> dmabuf = found.entry->dmabuf;
    lock.unlock();
    Result<std::unique_ptr<MemoryRegion>> region = nullptr;
    try {
      region = register_entry(*device, found.memory, dmabuf);
    } catch (const std::bad_alloc&) {
      region = fail(Error::of_transport(ErrorCode::overloaded, "no memory"));
    }
    lock.lock();
    // The entry still exists because remove() waits. Its places may have moved in memory.
    Registered& own = place_of(*found.entry, device);
    own.busy = false;
    --found.entry->busy;
    changed_.notify_all();
    if (region) {
      own.region = std::move(*region);
      return {};
    }
    own.again = Clock::now() + refusal_pause;
    return fail(std::move(region.error()));
  }
}

void UserMemory::register_all(const std::shared_ptr<Device>& device) {
  std::vector<const std::byte*> all;
  {
    const std::lock_guard lock(mutex_);
    entries_.each([&](MutableBytes memory, const Entry&) { all.push_back(memory.data()); });
  }
  for (const std::byte* const memory : all) static_cast<void>(register_with(memory, device));
}

void UserMemory::remove(const std::byte* memory) noexcept {
  std::vector<Registered> gone;  // Deregistered without holding the lock.
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entries_.find(memory, 0).entry->busy == 0; });
    gone = std::move(entries_.find(memory, 0).entry->registered);
    entries_.remove(memory);
    bytes_.store(entries_.bytes(), std::memory_order_relaxed);
  }
}

UserMemory::Found UserMemory::found_in(Entry& entry, MutableBytes memory, const Registered& place) noexcept {
  entry.block->retain();
  return {entry.block, memory, place.region->local_key(), place.region->remote_key(), entry.dmabuf.has_value()};
}

UserMemory::Found UserMemory::retain(const std::shared_ptr<Device>& device, const std::byte* data, std::size_t bytes,
                                     const Later& later) {
  if (bytes_.load(std::memory_order_relaxed) == 0) return {};
  std::unique_lock lock(mutex_);
  auto found = entries_.find(data, bytes);
  if (found.entry == nullptr) return {};
  Registered& place = place_of(*found.entry, device);
  if (place.region != nullptr) return found_in(*found.entry, found.memory, place);
  const auto now = Clock::now();
  if (place.busy || now < place.again) return {};
  place.again = now + refusal_pause;
  const std::byte* const start = found.memory.data();
  lock.unlock();
  if (later) {
    later([self = weak_from_this(), start, device] {
      if (const auto memory = self.lock()) static_cast<void>(memory->register_with(start, device));
    });
    return {};
  }
  if (!register_with(start, device)) return {};
  lock.lock();
  found = entries_.find(data, bytes);
  if (found.entry == nullptr) return {};
  Registered& made = place_of(*found.entry, device);
  return made.region != nullptr ? found_in(*found.entry, found.memory, made) : Found{};
}

}  // namespace hawser::transport::rdma
