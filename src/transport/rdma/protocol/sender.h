#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/transfers.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

struct SenderOptions {
  std::size_t packet_bytes_max = 256 * 1024;  // What the peer's chunks hold, and ours.
  std::size_t chunk_bytes = 256 * 1024;
  unsigned send_window = 2;
  std::size_t eager_bytes_max = 64 * 1024;
  std::size_t copied_bytes_max =
      4 * 1024 * 1024;  // What no packet holds, up to here: copied once, and read from there.
  std::size_t rendezvous_max = 64;
};

// Messages into packets. Those of a tick are written side by side into a registered chunk and leave as one packet;
// while no packet may leave they go on to gather there, and beyond the window in ordinary memory. No loop, no clock:
// flush() is called at the end of a tick, on_completed() when the queue pair has done something.
class Sender {
 public:
  // A tick sends early once it has produced this much, so that the peer works while we go on.
  static constexpr std::size_t early_flush_bytes = 32 * 1024;
  // Pieces up to here travel within a rendezvous instead of being read.
  static constexpr std::size_t literal_bytes_max = 256;
  // Of copies that wait for the peer to read them: they count as sent. What comes beyond goes through the chunks.
  static constexpr std::size_t copies_bytes_max = std::size_t{8} << 20;

  // `first` is a chunk, and `control` has control_bytes; the pool gets both back.
  Sender(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const RegisteredMemory& first,
         const RegisteredMemory& control, const SenderOptions& options);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  ~Sender();

  // As those of transport::Connection.
  std::byte* reserve(std::size_t head_bytes);
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void copy_and_release(SendCompletion& owner);
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t sent() const noexcept { return sent_; }

  // Sends what may be sent. `control`: also a grant if one is due.
  void flush();
  // Something has completed: chunks may be free again. True if that lets more be sent.
  bool on_completed();

  // The peer has read a payload; false if there is no such transfer.
  [[nodiscard]] bool transfer_done(std::uint32_t transfer);
  // A payload of the peer's has been read: tell it.
  void add_done(std::uint32_t transfer) { done_.push_back(transfer); }

  // Says bye once all is sent and read.
  void close() noexcept { closing_ = true; }
  bool fin_completed() const noexcept { return fin_id_ != 0 && work_queue_.slots.is_done(fin_id_); }
  bool fin_posted() const noexcept { return fin_id_ != 0; }

  // Makes sure, as far as credits allow, that a completion tells when all that was posted has reached the peer.
  void mark_end();
  // Drops what is not posted and tells all owners. What the peer may still read is held until this is destroyed.
  void clear() noexcept;

  static constexpr std::size_t control_bytes = 4096;

 private:
  // A stretch of the window. Packets lie in it one behind the other; the last one may still be open.
  struct Chunk {
    RegisteredMemory memory;
    std::size_t filled = 0;
    std::size_t open = 0;       // Where the open packet begins.
    unsigned waiting = 0;       // Packets that are closed and not posted.
    std::uint64_t last_id = 0;  // The last one posted that the device still reads from memory.
  };
  struct Packet {
    Chunk* chunk = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t position = 0;  // See sent().
  };
  // A message, or the rest of one, that had no room.
  struct WaitingMessage {
    Buffer head;  // Or, of a rendezvous, the whole record.
    std::vector<ConstBuffer> pieces;
    Buffer copy;  // Holds the pieces if they had to be copied.
    std::size_t payload_bytes = 0;
    std::size_t done = 0;  // Bytes of head and payload that are packed.
    SendCompletion* owner = nullptr;
    bool rendezvous = false;
  };

  static constexpr std::size_t done_per_packet = 16;
  static constexpr std::size_t tail_bytes = done_per_packet * 4;  // Kept free at a packet's end.
  static constexpr std::size_t fragment_bytes_min = 256;          // With less room none is begun.
  static constexpr std::size_t spare_pieces_max = 64;
  static constexpr std::size_t control_slots = control_bytes / tail_bytes;

  Chunk& current() noexcept { return *chunks_.back(); }
  std::byte* end() noexcept { return current().memory.data + current().filled; }
  std::size_t open_bytes() noexcept { return current().filled - current().open; }
  std::size_t room() noexcept;
  bool make_room(std::size_t bytes);
  bool next_chunk();
  // A record that is whole is contiguous. It fits behind a chunk's last packet that asks for no completion, which ends
  // at three quarters and may have a tail behind it, and into the peer's chunk.
  std::size_t rendezvous_record_max() const noexcept {
    return std::min(options_.chunk_bytes / 4 - 2 * tail_bytes, options_.packet_bytes_max - tail_bytes);
  }

  Buffer make_copied_rendezvous(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes);
  Buffer make_rendezvous(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes,
                         SendCompletion* owner, std::size_t copied_bytes = 0);
  void pack_whole(std::size_t head_bytes, std::span<const ConstBuffer> payload, std::size_t payload_bytes);
  std::vector<ConstBuffer> acquire_pieces();
  void release_pieces(std::vector<ConstBuffer> pieces);
  void pump();
  bool pack_some(WaitingMessage& message);
  void close_packet() noexcept;
  bool may_post_packet();
  // The open packet too, if it has so many bytes.
  void post_packets(std::size_t open_bytes_min);
  void post(const Packet& packet);
  void post_early();
  void post_control();
  void recycle();

  WorkQueue& work_queue_;
  const std::shared_ptr<MemoryPool> pool_;
  const SenderOptions options_;
  const RegisteredMemory control_;
  std::array<std::uint64_t, control_slots> control_ids_{};
  std::size_t next_control_ = 0;

  Queue<std::unique_ptr<Chunk>> chunks_;  // The last one is being filled.
  std::unique_ptr<Chunk> spare_;
  Queue<Packet> packets_;          // Closed, not posted.
  Queue<std::uint64_t> on_wire_;   // The ids of those that are posted and not done.
  Queue<WaitingMessage> waiting_;  // Behind the packets.
  Buffer reserved_;                // What reserve() gave outside of the chunk.
  std::size_t unsignalled_ = 0;    // Bytes posted since the last packet that asked for a completion.
  std::vector<std::uint32_t> done_;
  Transfers transfers_;
  // Kept for their room, so that the steady state allocates nothing.
  std::vector<Block*> blocks_;
  std::vector<RemoteBuffer> remote_pieces_;
  std::vector<std::vector<ConstBuffer>> spare_pieces_;

  std::uint64_t committed_ = 0;
  std::uint64_t packed_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t fin_id_ = 0;
  bool closing_ = false;
  bool pumping_ = false;
};

}  // namespace hawser::transport::rdma
