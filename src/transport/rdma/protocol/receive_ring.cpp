#include "transport/rdma/protocol/receive_ring.h"

#include <utility>

#include "base/try.h"

namespace hawser::transport::rdma {

ReceiveChunk::ReceiveChunk(ReceiveRing& ring, const RegisteredMemory& memory, std::uint32_t index) noexcept
    : ExternalBlock(&ReceiveRing::returned), ring_(ring), memory_(memory), index_(index) {}

ReceiveRing::ReceiveRing(std::shared_ptr<MemoryPool> pool, std::size_t chunk_bytes, ReceiveRingOwner& owner)
    : pool_(std::move(pool)), chunk_bytes_(chunk_bytes), owner_(&owner) {}

ReceiveRing::~ReceiveRing() {
  for (const auto& chunk : chunks_) {
    if (chunk != nullptr) pool_->release(chunk->memory_);
  }
}

Result<void> ReceiveRing::grow(std::size_t count) {
  chunks_.reserve(chunks_.size() + count);
  for (std::size_t i = 0; i < count; ++i) {
    TRY(const auto& memory, pool_->acquire(chunk_bytes_, MemoryPool::Use::connection));
    chunks_.push_back(std::make_unique<ReceiveChunk>(*this, memory, static_cast<std::uint32_t>(chunks_.size())));
    free_.push_back(chunks_.back().get());
  }
  free_.reserve(chunks_.size());
  requests_.reserve(chunks_.size());
  const std::lock_guard lock(mutex_);
  returned_.reserve(chunks_.size());
  taken_.reserve(chunks_.size());
  return {};
}

Result<void> ReceiveRing::repost(const Post& post, const Posted& posted) {
  if (free_.empty()) return {};
  requests_.clear();
  for (const ReceiveChunk* chunk : free_) {
    requests_.push_back(
        {.id = id_bit | chunk->index_,
         .segment = {chunk->memory_.data, static_cast<std::uint32_t>(chunk_bytes_), chunk->memory_.local_key}});
  }
  TRY(post(requests_));
  for (ReceiveChunk* chunk : free_) {
    if (std::exchange(chunk->disowned_, false)) --disowned_;
    if (const std::uint32_t user = std::exchange(chunk->queue_pair, 0); user != 0) posted(*chunk, user);
  }
  free_.clear();
  return {};
}

ReceiveChunk* ReceiveRing::completed(std::uint64_t id) noexcept {
  const std::uint64_t index = id & ~id_bit;
  return index < chunks_.size() ? chunks_[index].get() : nullptr;
}

void ReceiveRing::disown(std::uint32_t queue_pair) noexcept {
  for (const auto& chunk : chunks_) {
    if (chunk->queue_pair != queue_pair) continue;
    chunk->queue_pair = 0;
    chunk->disowned_ = true;
    ++disowned_;
  }
}

void ReceiveRing::finish(ReceiveChunk& chunk) noexcept {
  if (chunk.unique()) {
    free_.push_back(&chunk);
    return;
  }
  ++held_;
  if (closed_) {
    const std::lock_guard lock(mutex_);
    ++missing_;
    kept_alive_ = shared_from_this();
  }
  chunk.release();
}

// The last reference to the chunk was dropped.
void ReceiveRing::returned(ExternalBlock& block) noexcept {
  ReceiveChunk& chunk = static_cast<ReceiveChunk&>(block);
  ReceiveRing& ring = chunk.ring_;
  // Declared before the lock, so that the ring is destroyed after the lock is released.
  std::shared_ptr<ReceiveRing> last;
  const std::lock_guard lock(ring.mutex_);
  if (ring.closed_) {
    if (--ring.missing_ == 0) last = std::move(ring.kept_alive_);
    return;
  }
  chunk.loan();
  ring.returned_.push_back(&chunk);
  if (ring.returned_.size() == 1) ring.owner_->chunks_returned();
}

void ReceiveRing::collect() noexcept {
  if (held_ == 0) return;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(returned_);
  }
  held_ -= taken_.size();
  free_.insert(free_.end(), taken_.begin(), taken_.end());
  taken_.clear();
}

void ReceiveRing::close() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true)) return;
  // Chunks that were returned and not collected yet are not missing.
  missing_ = held_ - returned_.size();
  if (missing_ != 0) kept_alive_ = shared_from_this();
}

}  // namespace hawser::transport::rdma
