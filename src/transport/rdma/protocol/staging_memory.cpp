#include "transport/rdma/protocol/staging_memory.h"

#include <utility>

namespace hawser::transport::rdma {

StagingMemory::StagingMemory(std::shared_ptr<MemoryPool> pool, const RegisteredMemory& floor, std::size_t range_bytes)
    : pool_(std::move(pool)), range_bytes_(range_bytes) {
  ranges_.push_back({floor, false});
}

StagingMemory::~StagingMemory() {
  shrink();
  pool_->release(ranges_.front().memory);
}

std::size_t StagingMemory::acquire() {
  for (std::size_t i = ranges_.size(); i-- > 1;) {
    if (!std::exchange(ranges_[i].busy, true)) return i + 1;
  }
  if (ranges_.size() <= ranges_max) {
    if (const auto memory = pool_->acquire(range_bytes_, MemoryPool::Use::connection); memory) {
      ranges_.push_back({*memory, true});
      return ranges_.size();
    }
  }
  // Without other staging memory, the floor is used in small steps.
  if (ranges_.size() > 1 || std::exchange(ranges_.front().busy, true)) return 0;
  return 1;
}

void StagingMemory::shrink() noexcept {
  for (std::size_t i = 1; i < ranges_.size(); ++i) pool_->release(ranges_[i].memory);
  ranges_.resize(1);
  ranges_.front().busy = false;
}

}  // namespace hawser::transport::rdma
