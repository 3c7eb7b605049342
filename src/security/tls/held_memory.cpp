#include "security/tls/held_memory.h"

namespace hawser::tls {

MemoryHolder::~MemoryHolder() {
  if (memory_ != nullptr && bytes_ != 0) memory_->set(*this, 0, false);
}

void MemoryHolder::hold(std::size_t bytes, bool progress) {
  if (memory_ == nullptr || (bytes == bytes_ && (bytes == 0 || !progress))) return;
  memory_->set(*this, bytes, progress);
}

void HeldMemory::set(MemoryHolder& holder, std::size_t bytes, bool progress) {
  const bool listed = holder.bytes_ != 0;
  used_ = used_ - holder.bytes_ + bytes;
  totals_->bytes.fetch_add(bytes - holder.bytes_, std::memory_order_relaxed);
  holder.bytes_ = bytes;
  if (bytes == 0) {
    if (listed) holder.unlisted_.splice(holder.unlisted_.begin(), holders_, holder.place_);
    return;
  }
  if (!listed) {
    holders_.splice(holders_.end(), holder.unlisted_);
  } else if (progress) {
    holders_.splice(holders_.end(), holders_, holder.place_);
  }
  while (used_ > bytes_max_ && !holders_.empty()) {
    MemoryHolder& oldest = *holders_.front();
    used_ -= oldest.bytes_;
    totals_->bytes.fetch_sub(oldest.bytes_, std::memory_order_relaxed);
    totals_->ended.fetch_add(1, std::memory_order_relaxed);
    oldest.bytes_ = 0;
    oldest.unlisted_.splice(oldest.unlisted_.begin(), holders_, holders_.begin());
    oldest.give_up();
  }
}

std::shared_ptr<HeldMemory> HeldMemories::of(const Loop& loop) {
  if (bytes_max_ == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  // Loops that have ended.
  std::erase_if(memories_, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<HeldMemory>& known = memories_[&loop];
  std::shared_ptr<HeldMemory> memory = known.lock();
  if (memory == nullptr) known = memory = std::make_shared<HeldMemory>(bytes_max_, totals_);
  return memory;
}

}  // namespace hawser::tls
