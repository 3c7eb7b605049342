#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/message_assembly.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/arrived_packets.h"
#include "transport/rdma/protocol/incoming_transfers.h"
#include "transport/rdma/protocol/receive_ring.h"
#include "transport/rdma/protocol/sender.h"
#include "transport/rdma/protocol/work_queue.h"
#include "wire/message.h"

namespace hawser::transport::rdma {

struct ReceiverOptions {
  wire::MessageLimit message_limit{std::size_t{64} << 20};
  std::size_t receive_buffer_bytes_min = 32 * 1024;
  // Its reads_max is 0 if the peer answers no reads, so that it must not offer payloads to be read.
  IncomingTransferOptions transfers;
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
  std::size_t ahead_bytes() const noexcept { return transfers_.ahead_bytes(); }
  bool received_fin() const noexcept { return fin_ != Fin::none; }

  // True if the pause keeps received data from being delivered.
  bool held_back() const noexcept { return paused_ && !arrivals_.empty(); }

  // Drops everything except memory that is being read into. May be called from within a callback.
  void end() noexcept;

 private:
  enum class Fin : std::uint8_t { none, received, delivered };

  void deliver();
  bool take_one(ArrivedPackets::Packet& arrival);
  bool take_part(Bytes bytes);
  bool take_rendezvous(ArrivedPackets::Packet& arrival, const RdmaRecord& record);
  bool begin_transfer(const RdmaRecord& record, bool ahead);
  bool select_receive_buffer_late(IncomingTransfer& transfer, Bytes head);
  void look_ahead();
  void drop_all() noexcept;
  bool protocol_violation(std::string_view how);

  RdmaReceiverOwner& owner_;
  WorkQueue& work_queue_;
  RdmaSender& sender_;
  ReceiveRing& ring_;
  const ReceiverOptions options_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;  // The sink's account. Null if it has none, and after the end.

  ArrivedPackets arrivals_;
  MessageAssembly assembly_;  // The message that is arriving in fragments.
  IncomingTransfers transfers_;
  std::uint64_t arrived_ = 0;
  bool paused_ = true;
  bool taking_ = false;
  bool ended_ = false;
  Fin fin_ = Fin::none;
};

}  // namespace hawser::transport::rdma
