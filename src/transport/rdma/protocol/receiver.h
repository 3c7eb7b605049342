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

namespace hawser::transport::rdma {

struct ReceiverOptions {
  std::size_t message_bytes_max = std::size_t{64} << 20;
  std::size_t receive_buffer_bytes_min = 32 * 1024;
  std::size_t read_bytes_max = std::size_t{1} << 20;
  std::size_t reads_max = 16;  // 0: the peer answers none, so that it must not offer payloads to be read.
  std::size_t ahead_bytes_max = std::size_t{8} << 20;  // Of payloads that are read before it is their turn.
  std::size_t staging_bytes = 256 * 1024;  // One stretch of memory that is read into before it is copied on.
  std::size_t held_chunks_max = 4;         // That the sink keeps; what comes beyond must be copied to last.
};

// Told from within Receiver's calls; must not destroy it.
class ReceiverOwner {
 public:
  // The peer broke the protocol.
  virtual void on_protocol_violation(std::string_view how) = 0;
  // The peer's last message has been delivered.
  virtual void on_fin() = 0;

 protected:
  ~ReceiverOwner() = default;
};

// Packets into messages, in order. A payload that the peer has us read is fetched straight into its place; while one is
// on its way, those behind it are fetched too. No loop, no clock.
class Receiver {
 public:
  static constexpr std::size_t staging_floor_bytes = 4096;
  static constexpr std::size_t transfers_ahead_max = 8;

  // `floor` is staging memory of staging_floor_bytes that is there even at the watermark; the pool gets it back.
  Receiver(ReceiverOwner& owner, WorkQueue& work_queue, Sender& sender, std::shared_ptr<MemoryPool> pool,
           ReceiveRing& ring, const RegisteredMemory& floor, const ReceiverOptions& options);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  ~Receiver();

  // A packet lies in `chunk`, which goes back to the ring when it has been read.
  void on_packet(ReceiveChunk& chunk, std::uint32_t bytes, std::uint32_t immediate);
  // Something has completed: reads may have.
  void on_completed();
  // Asks for what is to be read, as far as there are slots. At the end of a tick.
  void read_on();

  void start(MessageSink& sink);
  void pause() noexcept { paused_ = true; }
  void resume();
  bool paused() const noexcept { return paused_; }
  void revoke_receive_buffer(const std::byte* memory) noexcept;
  std::uint64_t arrived() const noexcept { return arrived_; }
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_; }
  bool received_fin() const noexcept { return fin_; }

  // Something has come that the pause keeps from being delivered.
  bool held_back() const noexcept { return paused_ && !arrivals_.empty(); }

  // Drops everything, apart from memory that is read into. May be called from within a callback.
  void end() noexcept;

 private:
  struct ReceivedPacket {
    ReceiveChunk* chunk = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // A payload that we read.
  struct IncomingTransfer {
    std::uint32_t id = 0;
    std::vector<RemoteBuffer> pieces;
    std::size_t piece = 0;  // The next to be asked for, from `offset` on.
    std::size_t offset = 0;
    std::size_t size = 0;
    std::size_t asked = 0;
    std::size_t done = 0;
    PayloadBuffer payload;
    RegisteredMemory direct;  // Where it is read to, if that is registered.
    Block* block = nullptr;   // Holds `direct`, also when the payload is discarded: the device may write there.
    bool selected = false;    // The sink has been asked where it goes.
    std::size_t ahead = 0;    // Bytes that are counted as read ahead.
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
  // A place in what has come: the number of the packet, and the offset in it.
  struct Position {
    std::uint64_t packet = 0;
    std::size_t offset = 0;
    auto operator<=>(const Position&) const = default;
  };

  void deliver();
  bool take_one(ReceivedPacket& arrival);
  bool take_part(Bytes bytes);
  bool take_rendezvous(ReceivedPacket& arrival, const Record& record);
  bool begin_transfer(const Record& record, bool ahead);
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

  ReceiverOwner& owner_;
  WorkQueue& work_queue_;
  Sender& sender_;
  const std::shared_ptr<MemoryPool> pool_;
  ReceiveRing& ring_;
  const ReceiverOptions options_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;  // The sink's; null without one, and at the end.

  Queue<ReceivedPacket> arrivals_;
  std::uint64_t first_packet_ = 0;               // The number of arrivals_'s front.
  Position looked_;                              // Rendezvous before here have begun.
  MessageAssembly assembly_;                     // Of the message that comes in fragments.
  std::list<IncomingTransfer> transfers_;        // In the order of their records.
  std::list<IncomingTransfer> spare_transfers_;  // Kept for their room, so that the steady state allocates nothing.
  Queue<Read> reads_;
  std::vector<Staging> staging_;  // The first is the floor.
  std::uint64_t arrived_ = 0;
  std::size_t ahead_bytes_ = 0;
  bool paused_ = true;
  bool due_ = false;  // A transfer is whole that nothing will tell of.
  bool taking_ = false;
  bool ended_ = false;
  bool fin_ = false;
  bool fin_notified_ = false;
};

}  // namespace hawser::transport::rdma
