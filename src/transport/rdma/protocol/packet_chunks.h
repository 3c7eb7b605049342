#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/records.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

struct PacketChunkOptions {
  std::size_t chunk_bytes = 256 * 1024;
  std::size_t packet_bytes_max = 256 * 1024;
  std::size_t chunks_max = 2;
};

// The registered memory in which a sender writes packets: a few chunks, which are filled one behind the other. Packets
// lie in a chunk one after the other, and the last one is open for more records. A chunk is used again when the device
// has sent all of its packets.
class PacketChunks {
 public:
  // Kept free at the end of each packet, for the ids of finished transfers.
  static constexpr std::size_t tail_bytes = 64;

  // A part of the memory.
  struct Chunk {
    RegisteredMemory memory;
    std::size_t filled = 0;
    std::size_t open = 0;       // Offset of the open packet.
    unsigned waiting = 0;       // Packets that are closed and not posted.
    std::uint64_t last_id = 0;  // Id of the last posted packet that the device still reads from this memory.
  };
  // A closed packet.
  struct Packet {
    Chunk* chunk = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t position = 0;  // Bytes of messages that were written up to its end.
  };

  // `first` is a chunk. It returns to the pool.
  PacketChunks(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const RegisteredMemory& first,
               const PacketChunkOptions& options);
  PacketChunks(const PacketChunks&) = delete;
  PacketChunks& operator=(const PacketChunks&) = delete;
  // The device must not read any more.
  ~PacketChunks();

  // ---- The open packet
  std::byte* end() noexcept { return current().memory.data + current().filled; }
  std::size_t open_bytes() noexcept { return current().filled - current().open; }
  // Bytes that a record at end() may have.
  std::size_t room() noexcept {
    const std::size_t chunk_end = options_.chunk_bytes - tail_bytes;
    const std::size_t packet_end = current().open + options_.packet_bytes_max - tail_bytes;
    const std::size_t end = std::min(chunk_end, packet_end);
    return current().filled < end ? end - current().filled : 0;
  }
  // Makes room for `bytes` contiguous bytes, if necessary in another packet or chunk. Returns false if there is none
  // until more packets have been sent.
  bool make_room(std::size_t bytes) { return room() >= bytes || make_more_room(bytes); }
  // A record of `bytes` bytes, within room(), has been written at end(). It carries so many bytes of messages.
  void written(std::size_t bytes, std::size_t message_bytes) noexcept {
    current().filled += bytes;
    written_ += message_bytes;
  }
  void close_packet() noexcept {
    Chunk& chunk = current();
    if (chunk.open == chunk.filled) return;
    packets_.push({&chunk, chunk.open, chunk.filled, written_});
    chunk.open = chunk.filled;
    ++chunk.waiting;
  }

  // ---- Closed packets
  bool empty() const noexcept { return packets_.empty(); }
  // Removes the oldest packet, which is posted now.
  Packet pop() noexcept {
    const Packet packet = packets_.pop();
    --packet.chunk->waiting;
    return packet;
  }
  // Returns tail_bytes of room behind the packet of pop(). Null if another packet was begun there.
  std::byte* tail(const Packet& packet) const noexcept {
    return packet.end == packet.chunk->filled ? packet.chunk->memory.data + packet.end : nullptr;
  }
  // So many bytes of tail() belong to the packet now.
  void use_tail(const Packet& packet, std::size_t bytes) noexcept {
    packet.chunk->filled = packet.chunk->open = packet.end + align_up(bytes);
  }
  // True if the packet lies in the last quarter of its chunk.
  bool ends_chunk(const Packet& packet) const noexcept {
    return options_.chunk_bytes - packet.end < options_.chunk_bytes / 4;
  }
  // The device reads the packet until the request with this id has completed.
  void posted(const Packet& packet, std::uint64_t id) noexcept { packet.chunk->last_id = id; }
  void drop_packets() noexcept {
    while (!packets_.empty()) packets_.pop();
  }

  // Makes the chunks free whose packets have all been sent. Submits waiting requests, because the device reads inline
  // data until then.
  void recycle();

 private:
  Chunk& current() noexcept { return *chunks_.back(); }
  bool is_free(const Chunk& chunk) const noexcept {
    return chunk.waiting == 0 && chunk.open == chunk.filled && work_queue_.slots.is_done(chunk.last_id);
  }
  bool make_more_room(std::size_t bytes);
  bool next_chunk();

  WorkQueue& work_queue_;
  const std::shared_ptr<MemoryPool> pool_;
  const PacketChunkOptions options_;
  Queue<std::unique_ptr<Chunk>> chunks_;  // The last one is being filled.
  std::unique_ptr<Chunk> spare_;
  Queue<Packet> packets_;  // Closed, not posted.
  std::uint64_t written_ = 0;
};

}  // namespace hawser::transport::rdma
