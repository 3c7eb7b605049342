#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/time.h"
#include "transport/common/liveness.h"
#include "transport/rdma/connection/rdma_worker.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/protocol/channel.h"
#include "transport/rdma/protocol/receive_ring.h"

namespace hawser::transport::rdma {

// A queue pair whose connection has ended, with all that its device may still touch, until it can be destroyed:
//
//   sending   What had been posted still reaches the peer, for at most sending_max. Then the stream is closed, so that
//   the peer
//             does not learn of the end before, and the queue pair fails.
//   draining  Only with a shared receive queue, whose chunks must come back: until the device has said that the queue
//   pair
//             uses up no more of them, and every completion before a marker has been taken; at most drain_max.
//
// Made before its connection is connected, so that ending one allocates nothing.
class DrainingQueuePair final : public CompletionTarget {
 public:
  static constexpr Duration sending_max = std::chrono::milliseconds(200);
  static constexpr Duration drain_max = std::chrono::seconds(1);
  // A loop that stood still for longer, in a handler that blocks, has not seen what the device said: that does not
  // count.
  static constexpr Duration look_max = std::chrono::milliseconds(200);

  // What a connection leaves behind.
  struct Parts {
    std::unique_ptr<QueuePair> pair;
    std::unique_ptr<Channel> channel;  // Null if it was never connected, or only in part.
    std::shared_ptr<ReceiveRing> ring;
    std::unique_ptr<Liveness> liveness;
    std::size_t entries = 0;          // Of the completion queue.
    std::size_t shared_receives = 0;  // That it was promised of the shared queue; 0 without one.
    std::size_t unposted = 0;         // Chunks of the shared queue that it used up and that are not posted again.
    bool connecting = false;  // QueuePair::connect() was called: the peer may have used up receives, even if it failed.
    bool broken = false;      // There is nothing to wait for before the queue pair fails.
    bool last_receive_reached = false;  // The device has said so already.
    // True while the helper thread connects the queue pair. Null if it does not.
    std::shared_ptr<const bool> busy = nullptr;
  };

  explicit DrainingQueuePair(RdmaWorker& worker) noexcept : worker_(worker) {}
  DrainingQueuePair(const DrainingQueuePair&) = delete;
  DrainingQueuePair& operator=(const DrainingQueuePair&) = delete;
  ~DrainingQueuePair();
  void start(Parts parts, Time now) noexcept;

  void on_completion(const Completion& completion) override;
  void on_event(const DeviceEvent& event) override;
  void on_posted(const ReceiveChunk&) override { --parts_.unposted; }

  // Goes on as far as it can; true once destroy_pair() is due. Without `drain` the shared receive queue is about to go
  // too.
  bool advance(Time now, bool drain) noexcept;
  // The device lets go.
  void destroy_pair() noexcept;

  std::uint32_t number() const noexcept { return number_; }
  const Parts& parts() const noexcept { return parts_; }
  // Whether all chunks that the queue pair had used up have come back.
  bool drained() const noexcept { return drained_; }

 private:
  static constexpr std::uint64_t marker_id = std::uint64_t{1} << 62;
  enum class State : std::uint8_t { sending, draining };

  bool post_marker() noexcept;

  RdmaWorker& worker_;
  Parts parts_;
  std::uint32_t number_ = 0;
  State state_ = State::sending;
  Time give_up_{};
  Time looked_{};
  std::size_t received_ = 0;
  bool marked_ = false;
  bool drained_ = false;
};

}  // namespace hawser::transport::rdma
