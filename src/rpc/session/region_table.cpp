#include "rpc/session/region_table.h"

#include <algorithm>
#include <utility>

#include "base/kernel_random.h"

namespace hawser::detail {

// ---- Grant ----

wire::RegionId Grant::publish() {
  const std::lock_guard lock(mutex_);
  const wire::RegionId id = table_->add(shared_from_this());
  slot_ = id.slot;
  published_ = true;
  return id;
}

void Grant::add(std::unique_ptr<transport::MemoryExposure> exposure) {
  const std::lock_guard lock(mutex_);
  exposures_.push_back(std::move(exposure));
}

void Grant::revoke() noexcept {
  std::uint32_t state = state_.fetch_or(revoked_bit, std::memory_order_acq_rel) | revoked_bit;
  const std::lock_guard lock(mutex_);
  if (std::exchange(published_, false)) table_->remove(slot_);
  while ((state & ~revoked_bit) != 0) {
    state_.wait(state, std::memory_order_acquire);
    state = state_.load(std::memory_order_acquire);
  }
  exposures_.clear();
}

bool Grant::lost() noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(exposures_.begin(), exposures_.end(), [](const auto& one) { return one->lost(); });
}

// ---- RegionTable ----

RegionTable::RegionTable() : owner_(kernel_random()) {}

wire::RegionId RegionTable::add(const std::shared_ptr<Grant>& grant) {
  const std::uint64_t capability = kernel_random();
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 1);
    slots_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.grant = grant;
  slot.capability = capability;
  slot.used = true;
  ++slot.generation;  // Wraps around; the capability still differs.
  return {owner_, index, slot.generation, slot.capability};
}

void RegionTable::remove(std::uint32_t index) noexcept {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[index];
  slot.grant.reset();
  slot.used = false;
  free_.push_back(index);
}

std::shared_ptr<Grant> RegionTable::find(const wire::RegionId& id) noexcept {
  if (id.owner != owner_) return nullptr;
  const std::lock_guard lock(mutex_);
  if (id.slot >= slots_.size()) return nullptr;
  const Slot& slot = slots_[id.slot];
  if (!slot.used || slot.generation != id.generation || slot.capability != id.capability) return nullptr;
  return slot.grant.lock();
}

std::size_t RegionTable::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return slots_.size() - free_.size();
}

}  // namespace hawser::detail
