#include "security/tls/held_memory.h"

#include <algorithm>
#include <utility>

namespace hawser::security::tls {

MemoryHolder::~MemoryHolder() {
  if (memory_ == nullptr) return;
  if (bytes_ != 0) memory_->set(*this, 0, 0);
  if (--peer_->second.members == 0) memory_->peers_.erase(peer_);
}

void MemoryHolder::join(std::shared_ptr<HeldMemory> memory, const std::string& peer) {
  if (memory == nullptr) return;
  peer_ = memory->peers_.try_emplace(peer).first;
  ++peer_->second.members;
  memory_ = std::move(memory);
}

void MemoryHolder::hold(std::size_t bytes, std::size_t progress) {
  if (memory_ == nullptr || (bytes == bytes_ && (bytes == 0 || progress == 0))) return;
  memory_->set(*this, bytes, progress);
}

void HeldMemory::take_off(MemoryHolder& holder) noexcept {
  Peer& peer = holder.peer_->second;
  used_ -= holder.bytes_;
  peer.bytes -= holder.bytes_;
  if (holder.bytes_ != 0) holder.unlisted_.splice(holder.unlisted_.begin(), peer.waiting, holder.place_);
  holder.bytes_ = 0;
}

// Visits all peers. Each call costs a connection of the one that it returns.
HeldMemory::Peer* HeldMemory::largest() noexcept {
  Peer* most = nullptr;
  for (auto& [name, peer] : peers_) {
    if (!peer.waiting.empty() && (most == nullptr || peer.bytes > most->bytes)) most = &peer;
  }
  return most;
}

void HeldMemory::set(MemoryHolder& holder, std::size_t bytes, std::size_t progress) {
  if (bytes == 0) {
    take_off(holder);
    return publish();
  }
  Peer& peer = holder.peer_->second;
  const bool listed = holder.bytes_ != 0;
  used_ = used_ - holder.bytes_ + bytes;
  peer.bytes = peer.bytes - holder.bytes_ + bytes;
  holder.bytes_ = bytes;
  holder.progress_ = listed ? holder.progress_ + std::min(progress, bytes) : 0;
  if (!listed) {
    peer.waiting.splice(peer.waiting.end(), holder.unlisted_);
  } else if (holder.progress_ >= bytes) {
    holder.progress_ = 0;
    peer.waiting.splice(peer.waiting.end(), peer.waiting, holder.place_);
  }
  while (used_ > bytes_max_) {
    Peer* const most = largest();
    if (most == nullptr) break;
    MemoryHolder& oldest = *most->waiting.front();
    take_off(oldest);
    totals_->ended.fetch_add(1, std::memory_order_relaxed);
    oldest.give_up();
  }
  publish();
}

// After the limit was applied: other threads see no sum above it.
void HeldMemory::publish() noexcept {
  totals_->bytes.fetch_add(used_ - std::exchange(published_, used_), std::memory_order_relaxed);
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

}  // namespace hawser::security::tls
