#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/control_slots.h"
#include "transport/rdma/protocol/packet_chunks.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/rendezvous_offers.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

struct SenderOptions {
  std::size_t packet_bytes_max = 256 * 1024;  // Size of the peer's chunks and of this side's.
  std::size_t chunk_bytes = 256 * 1024;
  unsigned send_window = 2;
  std::size_t eager_bytes_max = 64 * 1024;
  // Payloads that fit into no packet, up to this size, are copied once, and the peer reads the copy.
  std::size_t copied_bytes_max = 4 * 1024 * 1024;
  std::size_t rendezvous_max = 64;
};

// Turns messages into packets. Messages of a tick are written one after the other into a registered chunk and are sent
// as one packet. While no packet may be sent, messages collect in the chunk, and beyond the window in ordinary memory.
// No loop, no clock: flush() is called at the end of a tick, and on_completed() after completions of the queue pair.
class RdmaSender {
 public:
  // A tick sends early once it has produced this many bytes, so that the peer works in parallel.
  static constexpr std::size_t early_flush_bytes = 32 * 1024;

  // `first` is a chunk, and `control` has ControlSlots::bytes. Both return to the pool.
  RdmaSender(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const RegisteredMemory& first,
             const RegisteredMemory& control, const SenderOptions& options);
  RdmaSender(const RdmaSender&) = delete;
  RdmaSender& operator=(const RdmaSender&) = delete;
  ~RdmaSender() { clear(); }

  // Like the functions of transport::Connection.
  std::byte* reserve(std::size_t head_bytes);
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void copy_and_release(SendCompletion& owner);
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t sent() const noexcept { return sent_; }

  // Sends everything that may be sent.
  void flush();
  // Called after completions, which may have released chunks. True if more can be sent now.
  bool on_completed();

  // The peer has read a payload. False if there is no such transfer.
  [[nodiscard]] bool transfer_done(std::uint32_t transfer) { return offers_.end(transfer); }
  // A payload of the peer has been read. A later packet notifies the peer.
  void add_done(std::uint32_t transfer) { done_.push_back(transfer); }

  // Sends fin when everything has been sent and read.
  void close() noexcept { closing_ = true; }
  bool fin_completed() const noexcept { return fin_id_ != 0 && work_queue_.slots.is_done(fin_id_); }
  bool fin_posted() const noexcept { return fin_id_ != 0; }

  // Ensures, as far as credits allow, that a completion shows when everything that was posted has reached the peer.
  void mark_end();
  // Drops messages that are not posted and notifies all owners. Memory that the peer may still read is held until this
  // is destroyed.
  void clear() noexcept;

 private:
  // A message, or the rest of one, for which there was no room.
  struct WaitingMessage {
    Buffer head;  // For a rendezvous, the whole record.
    std::vector<ConstBuffer> pieces;
    Buffer copy;  // Holds the pieces if they had to be copied.
    std::size_t payload_bytes = 0;
    std::size_t done = 0;  // Bytes of head and payload that are packed.
    SendCompletion* owner = nullptr;
    bool rendezvous = false;
  };

  static constexpr std::size_t done_per_packet = 16;
  static constexpr std::size_t tail_bytes = done_per_packet * 4;
  static_assert(tail_bytes <= PacketChunks::tail_bytes && tail_bytes <= ControlSlots::slot_bytes);
  static constexpr std::size_t fragment_bytes_min = 256;  // A fragment is not begun with less room.
  static constexpr std::size_t spare_pieces_max = 64;

  // A whole record is contiguous. It fits behind a chunk's last packet without a completion, which ends at three
  // quarters and may be followed by a tail, and it fits into the peer's chunk.
  static std::size_t rendezvous_record_max(const SenderOptions& options) noexcept {
    return std::min(options.chunk_bytes / 4 - 2 * tail_bytes, options.packet_bytes_max - tail_bytes);
  }

  void pack_whole(std::size_t head_bytes, std::span<const ConstBuffer> payload, std::size_t payload_bytes);
  std::vector<ConstBuffer> acquire_pieces();
  void release_pieces(std::vector<ConstBuffer> pieces);
  void pump();
  bool pack_some(WaitingMessage& message);
  bool may_post_packet();
  // Posts the open packet too if it has at least this many bytes.
  void post_packets(std::size_t open_bytes_min);
  void post(const PacketChunks::Packet& packet);
  std::size_t write_done(std::byte* to);
  void post_early();
  void post_control();

  WorkQueue& work_queue_;
  const SenderOptions options_;
  ControlSlots control_;
  PacketChunks chunks_;
  Queue<std::uint64_t> on_wire_;   // Ids of packets that are posted and not completed.
  Queue<WaitingMessage> waiting_;  // They are sent after the packets.
  Buffer reserved_;                // The memory that reserve() returned outside of the chunk.
  std::size_t unsignalled_ = 0;    // Bytes posted since the last packet that asked for a completion.
  std::vector<std::uint32_t> done_;
  RendezvousOffers offers_;
  // Kept for their capacity, so that the steady state allocates nothing.
  std::vector<std::vector<ConstBuffer>> spare_pieces_;

  std::uint64_t committed_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t fin_id_ = 0;
  bool closing_ = false;
  bool pumping_ = false;
};

}  // namespace hawser::transport::rdma
