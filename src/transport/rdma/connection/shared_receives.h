#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "hawser/rdma_options.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/receive_ring.h"

namespace hawser::transport::rdma {

// The shared receive queue of one loop, its chunks, and what of them is promised to connections. Loop's thread only.
class SharedReceives {
 public:
  // `owner` outlives the ring.
  static Result<std::unique_ptr<SharedReceives>> make(Device& device, const RdmaOptions& options,
                                                      std::shared_ptr<MemoryPool> pool, ReceiveRingOwner& owner);
  SharedReceives(std::unique_ptr<SharedReceiveQueue> queue, std::shared_ptr<ReceiveRing> ring, std::size_t most,
                 double low_watermark) noexcept;
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;
  ~SharedReceives();

  SharedReceiveQueue& queue() noexcept { return *queue_; }
  const std::shared_ptr<ReceiveRing>& ring() const noexcept { return ring_; }

  // Promises the receives of one more connection, and makes chunks for them.
  Result<void> promise(std::size_t receives);
  // Called when the queue pair of the connection has returned all that it had used up.
  void release(std::size_t receives) noexcept { promised_ -= receives; }
  // The device reports the end of draining: DeviceEventKind::last_receive_reached.
  void on_last_receive() noexcept { raises_last_receive_ = true; }
  bool raises_last_receive() const noexcept { return raises_last_receive_; }
  // Posts free chunks. `posted` is called for each that a queue pair had used up, with the number of the queue pair.
  Result<void> repost(const ReceiveRing::Posted& posted);
  bool refill_is_due() const noexcept;

 private:
  std::unique_ptr<SharedReceiveQueue> queue_;
  const std::shared_ptr<ReceiveRing> ring_;
  const std::size_t receives_max_;
  const double low_watermark_;
  std::size_t promised_ = 0;          // Receives promised to connections.
  bool raises_last_receive_ = false;  // The device has raised this event for a queue pair of the loop.
};

}  // namespace hawser::transport::rdma
