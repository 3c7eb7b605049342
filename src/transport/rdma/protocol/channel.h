#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/rdma/protocol/one_sided.h"
#include "transport/rdma/protocol/receive_ring.h"
#include "transport/rdma/protocol/receiver.h"
#include "transport/rdma/protocol/sender.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

struct RdmaChannelOptions {
  SenderOptions sender;
  ReceiverOptions receiver;
  OneSidedOptions one_sided;
  std::size_t send_slots = 64;  // Limit for the send slots of the queue pair.
  unsigned signal_every = 16;
  std::uint32_t peer_receives = 8;
  std::uint32_t own_receives = 8;
};

// Sends and receives the messages of one connected queue pair: the parts of a connection that need no loop. Completions
// and flush() drive it.
class RdmaChannel {
 public:
  // The registered memory of a channel, apart from its ring.
  struct Memory {
    RegisteredMemory chunk;    // options.sender.chunk_bytes
    RegisteredMemory control;  // ControlSlots::bytes
    RegisteredMemory staging;  // Receiver::staging_floor_bytes
    static Result<Memory> acquire(MemoryPool& pool, std::size_t chunk_bytes);
    void release(MemoryPool& pool) const noexcept;
  };

  // Takes over `memory`, which returns to the pool when the channel is destroyed, and the packets of this queue pair in
  // `ring`.
  RdmaChannel(RdmaReceiverOwner& owner, QueuePair& pair, std::shared_ptr<MemoryPool> pool, ReceiveRing& ring,
              const Memory& memory, const RdmaChannelOptions& options)
      : work_queue_(pair, RdmaCredits(options.peer_receives, options.own_receives),
                    SendSlots(std::min(pair.send_requests(), options.send_slots), options.signal_every)),
        sender_(work_queue_, pool, memory.chunk, memory.control, options.sender),
        receiver_(owner, work_queue_, sender_, pool, ring, memory.staging, options.receiver),
        one_sided_(work_queue_, pool, options.one_sided) {}

  RdmaSender& sender() noexcept { return sender_; }
  RdmaReceiver& receiver() noexcept { return receiver_; }
  OneSided& one_sided() noexcept { return one_sided_; }
  const WorkQueue& work_queue() const noexcept { return work_queue_; }
  // Credits and requests, as a text for people.
  std::string details() const;

  // A receive of this side was posted again.
  void on_posted(const ReceiveChunk& chunk) noexcept { work_queue_.credits.posted(chunk.weighty); }
  // True if the peer has few credits left, so that free chunks should be posted now.
  bool peer_is_short() const noexcept { return work_queue_.credits.peer_is_short(); }
  // Handles the completion of a send or read. False if no request has this id. Sets `more` if flush() has something to
  // do.
  [[nodiscard]] bool on_completed(std::uint64_t id, bool& more) {
    if (!work_queue_.slots.complete(id)) return false;
    receiver_.on_completed();
    one_sided_.on_completed();
    more = sender_.on_completed() || !one_sided_.idle();
    return true;
  }
  // Sends everything that may be sent. The error is that of the queue pair.
  std::optional<Error> flush() {
    receiver_.read_on();
    one_sided_.post();
    sender_.flush();
    work_queue_.submit();
    return work_queue_.failed();
  }
  // Drops requests that are not posted and notifies the owners of payloads. Memory that the device may still access is
  // held until this is destroyed. The queue pair must be destroyed before.
  void end(const Error& reason) {
    receiver_.end();
    sender_.clear();
    one_sided_.end(reason);
  }

 private:
  WorkQueue work_queue_;
  RdmaSender sender_;
  RdmaReceiver receiver_;
  OneSided one_sided_;
};

}  // namespace hawser::transport::rdma
