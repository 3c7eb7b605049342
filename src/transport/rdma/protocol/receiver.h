#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/message_assembly.h"
#include "transport/common/payload_buffer.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/receive_ring.h"
#include "transport/rdma/protocol/sender.h"
#include "transport/rdma/protocol/work_queue.h"
#include "wire/message.h"

namespace hawser::transport::rdma {

struct ReceiverOptions {
  wire::MessageLimit message_limit{std::size_t{64} << 20};
  std::size_t receive_buffer_bytes_min = 32 * 1024;
  std::size_t read_bytes_max = std::size_t{1} << 20;
  std::size_t reads_max = 16;  // 0: the peer answers no reads, so it must not offer payloads to be read.
  std::size_t ahead_bytes_max = std::size_t{8} << 20;  // Limit of payload bytes that are read before their turn.
  // Size of one range of memory into which data is read before it is copied to its destination.
  std::size_t staging_bytes = 256 * 1024;
  std::size_t held_chunks_max = 4;  // Limit of chunks that the sink keeps. Later messages must be copied to last.
};

// Called from within RdmaReceiver's functions. It must not destroy the receiver.
class RdmaReceiverOwner {
 public:
  // The peer violated the protocol.
  virtual void on_protocol_violation(std::string_view how) = 0;
  // The peer's last message has been delivered.
  virtual void on_fin() = 0;

 protected:
  ~RdmaReceiverOwner() = default;
};

// Turns packets into messages, in order. A payload that the peer offers to be read is read directly into its
// destination. Meanwhile, later payloads are read too. No loop, no clock.
class RdmaReceiver {
 public:
  static constexpr std::size_t staging_floor_bytes = 4096;
  static constexpr std::size_t transfers_ahead_max = 8;

  // `floor` is staging memory of staging_floor_bytes that is available even at the watermark. It returns to the pool.
  RdmaReceiver(RdmaReceiverOwner& owner, WorkQueue& work_queue, RdmaSender& sender, std::shared_ptr<MemoryPool> pool,
               ReceiveRing& ring, const RegisteredMemory& floor, const ReceiverOptions& options);
  RdmaReceiver(const RdmaReceiver&) = delete;
  RdmaReceiver& operator=(const RdmaReceiver&) = delete;
  ~RdmaReceiver();

  // A packet lies in `chunk`, which returns to the ring when the packet has been read.
  void on_packet(ReceiveChunk& chunk, std::uint32_t bytes, std::uint32_t immediate);
  // Called after completions, possibly of reads.
  void on_completed();
  // Posts the reads that are due, as far as there are slots. Called at the end of a tick.
  void read_on();

  void start(MessageSink& sink);
  void pause() noexcept { paused_ = true; }
  void resume();
  bool paused() const noexcept { return paused_; }
  void revoke_receive_buffer(const std::byte* memory) noexcept;
  std::uint64_t arrived() const noexcept { return arrived_; }
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_; }
  bool received_fin() const noexcept { return fin_; }

  // True if the pause keeps received data from being delivered.
  bool held_back() const noexcept { return paused_ && !arrivals_.empty(); }

  // Drops everything except memory that is being read into. May be called from within a callback.
  void end() noexcept;

 private:
  struct ReceivedPacket {
    ReceiveChunk* chunk = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // A payload that this side reads.
  struct IncomingTransfer {
    std::uint32_t id = 0;
    std::vector<RdmaRemoteBuffer> pieces;
    std::size_t piece = 0;  // Next piece to be read, from `offset` on.
    std::size_t offset = 0;
    std::size_t size = 0;
    std::size_t asked = 0;
    std::size_t done = 0;
    PayloadBuffer payload;
    RegisteredMemory direct;  // Destination of the read if it is registered.
    // Holds `direct`, even when the payload is discarded, because the device may still write there.
    Block* block = nullptr;
    bool selected = false;  // The sink has selected the destination.
    std::size_t ahead = 0;  // Bytes that are counted as read ahead.
    bool complete() const noexcept { return done == size; }
  };
  struct Read {
    std::uint64_t id = 0;
    IncomingTransfer* transfer = nullptr;
    std::size_t at = 0;
    std::size_t bytes = 0;
    std::size_t staging = 0;  // Index + 1, or 0 for none.
  };
  struct Staging {
    RegisteredMemory memory;
    bool busy = false;
  };
  // A position in the received data: the number of the packet, and the offset in it.
  struct Position {
    std::uint64_t packet = 0;
    std::size_t offset = 0;
    auto operator<=>(const Position&) const = default;
  };

  void deliver();
  bool take_one(ReceivedPacket& arrival);
  bool take_part(Bytes bytes);
  bool take_rendezvous(ReceivedPacket& arrival, const RdmaRecord& record);
  bool begin_transfer(const RdmaRecord& record, bool ahead);
  bool begin_payload(IncomingTransfer& transfer, bool ahead);
  bool select_receive_buffer_late(IncomingTransfer& transfer, Bytes head);
  IncomingTransfer& spare_transfer();
  void end_front_transfer() noexcept;
  void look_ahead();
  std::size_t acquire_staging();
  void cut_short(IncomingTransfer& transfer) noexcept;
  void drop_transfer(IncomingTransfer& transfer) noexcept;
  void drop_staging() noexcept;
  void drop_all() noexcept;
  bool protocol_violation(std::string_view how);

  RdmaReceiverOwner& owner_;
  WorkQueue& work_queue_;
  RdmaSender& sender_;
  const std::shared_ptr<MemoryPool> pool_;
  ReceiveRing& ring_;
  const ReceiverOptions options_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;  // The sink's account. Null if it has none, and after the end.

  Queue<ReceivedPacket> arrivals_;
  std::uint64_t first_packet_ = 0;               // Number of the front of arrivals_.
  Position looked_;                              // Rendezvous records before this position have begun.
  MessageAssembly assembly_;                     // The message that is arriving in fragments.
  std::list<IncomingTransfer> transfers_;        // Sorted by the order of their records.
  std::list<IncomingTransfer> spare_transfers_;  // Kept for their capacity, so that the steady state allocates nothing.
  Queue<Read> reads_;
  std::vector<Staging> staging_;  // The first is the floor.
  std::uint64_t arrived_ = 0;
  std::size_t ahead_bytes_ = 0;
  bool paused_ = true;
  bool due_ = false;  // A transfer is complete, and no completion will report it.
  bool taking_ = false;
  bool ended_ = false;
  bool fin_ = false;
  bool fin_notified_ = false;
};

}  // namespace hawser::transport::rdma
