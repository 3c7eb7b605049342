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

// A queue pair whose connection has ended, until it can be destroyed. It holds all that its device may still access. It
// has two states. Sending: requests that had been posted still reach the peer, for at most sending_max. Then the stream
// is closed, so that the peer does not learn of the end earlier, and the queue pair is set to the error state.
// Draining: used only with a shared receive queue, whose chunks must be returned. It lasts until the device has
// reported that the queue pair uses up no more chunks and every completion before a marker has been processed, for at
// most drain_max.
//
// It is made before its connection is connected, so that ending a connection allocates nothing.
class DrainingQueuePair final : public CompletionTarget {
 public:
  static constexpr Duration sending_max = std::chrono::milliseconds(200);
  static constexpr Duration drain_max = std::chrono::seconds(1);
  // If a loop was blocked for longer than this, such as by a handler, it has not seen the device's reports. That time
  // does not count towards drain_max.
  static constexpr Duration look_max = std::chrono::milliseconds(200);

  // Resources that an ended connection leaves.
  struct Parts {
    std::unique_ptr<QueuePair> pair;
    std::unique_ptr<RdmaChannel> channel;  // Null if the connection was not connected, or not completely.
    std::shared_ptr<ReceiveRing> ring;
    std::unique_ptr<Liveness> liveness;
    std::size_t entries = 0;          // Entries reserved in the completion queue.
    std::size_t shared_receives = 0;  // Receives that the shared queue reserved for it; 0 without a shared queue.
    std::size_t unposted = 0;  // Chunks of the shared queue that it has used up and that have not been posted again.
    bool connecting = false;  // QueuePair::connect() was called. The peer may have used up receives, even if it failed.
    bool broken = false;      // The queue pair is set to the error state without waiting.
    bool last_receive_reached = false;  // The device has reported this already.
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

  // Takes the next steps that are possible. True when destroy_pair() is due. Without `drain`, the shared receive queue
  // is about to be destroyed, too.
  bool advance(Time now, bool drain) noexcept;
  // Destroys the queue pair, so that the device does not access its memory any more.
  void destroy_pair() noexcept;

  std::uint32_t number() const noexcept { return number_; }
  const Parts& parts() const noexcept { return parts_; }
  // True if all chunks that the queue pair had used up have been returned.
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
