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
  const auto added = regions_.add({grant, capability});
  return {owner_, added.index, added.generation, capability};
}

void RegionTable::remove(std::uint32_t index) noexcept {
  const std::lock_guard lock(mutex_);
  regions_.free(index);
}

std::shared_ptr<Grant> RegionTable::find(const wire::RegionId& id) noexcept {
  if (id.owner != owner_) return nullptr;
  const std::lock_guard lock(mutex_);
  const Region* const found = regions_.find(id.slot, id.generation);
  return found != nullptr && found->capability == id.capability ? found->grant.lock() : nullptr;
}

std::size_t RegionTable::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return regions_.size();
}

}  // namespace hawser::detail
