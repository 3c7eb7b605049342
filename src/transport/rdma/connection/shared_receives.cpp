#include "transport/rdma/connection/shared_receives.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/try.h"

namespace hawser::transport::rdma {

Result<std::unique_ptr<SharedReceives>> SharedReceives::make(Device& device, const RdmaOptions& options,
                                                             std::shared_ptr<MemoryPool> pool,
                                                             ReceiveRingOwner& owner) {
  const std::size_t most = std::min(options.shared_receives_max, device.limits().shared_receive_requests);
  TRY(auto&& queue, device.create_shared_receive_queue(most));
  auto ring = std::make_shared<ReceiveRing>(std::move(pool), options.shared_chunk_bytes, owner);
  return std::make_unique<SharedReceives>(std::move(queue), std::move(ring), most, options.shared_low_watermark);
}

SharedReceives::SharedReceives(std::unique_ptr<SharedReceiveQueue> queue, std::shared_ptr<ReceiveRing> ring,
                               std::size_t most, double low_watermark) noexcept
    : queue_(std::move(queue)), ring_(std::move(ring)), receives_max_(most), low_watermark_(low_watermark) {}

SharedReceives::~SharedReceives() {
  queue_.reset();
  ring_->close();
}

Result<void> SharedReceives::promise(std::size_t receives) {
  // Chunks of ended connections that the application keeps cannot be posted for others.
  const std::size_t promised = promised_ + receives;
  const std::size_t wanted = promised + ring_->disowned();
  if (wanted > receives_max_) {
    return fail(Error::of_transport(
        ErrorCode::overloaded,
        std::to_string(receives_max_) +
            " shared receives are promised to connections, or kept: raise RdmaOptions::shared_receives_max"));
  }
  if (wanted > ring_->size()) {
    TRY(ring_->grow(wanted - ring_->size()));
  }
  promised_ = promised;
  return {};
}

Result<void> SharedReceives::repost(const ReceiveRing::Posted& posted) {
  ring_->collect();
  return ring_->repost([this](std::span<const ReceiveRequest> requests) { return queue_->post_receive(requests); },
                       posted);
}

bool SharedReceives::refill_is_due() const noexcept {
  const std::size_t waiting = ring_->waiting();
  // Chunks that others hold cannot be posted, so they do not count.
  const std::size_t there = ring_->size() - ring_->held();
  return waiting != 0 && static_cast<double>(waiting) >= low_watermark_ * static_cast<double>(there);
}

}  // namespace hawser::transport::rdma
