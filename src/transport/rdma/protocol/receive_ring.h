#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "hawser/error.h"
#include "heap/external_block.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/memory_pool.h"

namespace hawser::transport::rdma {

class ReceiveRing;

// A chunk into which a packet is received and in which it is read. While it is on loan, its references are counted like
// those of any block.
class ReceiveChunk final : public ExternalBlock {
 public:
  ReceiveChunk(ReceiveRing& ring, const RegisteredMemory& memory, std::uint32_t index) noexcept;
  const std::byte* bytes() const noexcept { return memory_.data; }

  // Queue pair of the packet that it holds or held last.
  std::uint32_t queue_pair = 0;
  bool weighty = false;

 private:
  friend class ReceiveRing;
  bool disowned_ = false;
  ReceiveRing& ring_;
  const RegisteredMemory memory_;
  const std::uint32_t index_;
};

// Notified when chunks can be posted again. Called on any thread, also from within ReceiveRing::finish().
class ReceiveRingOwner {
 public:
  virtual void chunks_returned() noexcept = 0;

 protected:
  ~ReceiveRingOwner() = default;
};

// The chunks posted to one receive queue: a queue pair's own queue, or one that a loop's connections share. Used by one
// thread, but any thread may drop the last reference to a chunk.
class ReceiveRing : public std::enable_shared_from_this<ReceiveRing> {
 public:
  // Marks the ids of receives, so that a failed completion can be recognized as that of a receive.
  static constexpr std::uint64_t id_bit = std::uint64_t{1} << 63;

  ReceiveRing(std::shared_ptr<MemoryPool> pool, std::size_t chunk_bytes, ReceiveRingOwner& owner);
  ReceiveRing(const ReceiveRing&) = delete;
  ReceiveRing& operator=(const ReceiveRing&) = delete;
  ~ReceiveRing();

  // Adds `count` chunks, which the next repost() posts.
  Result<void> grow(std::size_t count);
  // Posts the free chunks. Calls `posted` for each chunk that had held a packet.
  using Post = std::function<Result<void>(std::span<const ReceiveRequest>)>;
  using Posted = std::function<void(const ReceiveChunk&, std::uint32_t queue_pair)>;
  Result<void> repost(const Post& post, const Posted& posted);
  std::size_t waiting() const noexcept { return free_.size(); }

  // Returns the chunk of a completed receive; null if no receive has this id.
  ReceiveChunk* completed(std::uint64_t id) noexcept;
  // The packet has been read. Others may still hold references to the chunk.
  void finish(ReceiveChunk& chunk) noexcept;
  // The queue pair is gone. Chunks that it has used up belong to no queue pair until they are posted again.
  void disown(std::uint32_t queue_pair) noexcept;
  std::size_t disowned() const noexcept { return disowned_; }
  // Number of chunks that others hold.
  std::size_t held() const noexcept { return held_; }
  std::size_t size() const noexcept { return chunks_.size(); }
  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

  // Collects the chunks that other threads have returned.
  void collect() noexcept;
  // Called when nothing is posted any more and the device accesses no chunk. Releases the memory that nobody holds, and
  // the rest when it is returned.
  void close() noexcept;

 private:
  friend class ReceiveChunk;
  static void returned(ExternalBlock& block) noexcept;

  const std::shared_ptr<MemoryPool> pool_;
  const std::size_t chunk_bytes_;
  std::vector<std::unique_ptr<ReceiveChunk>> chunks_;
  std::vector<ReceiveChunk*> free_;
  std::vector<ReceiveChunk*> taken_;  // Scratch space of collect().
  std::vector<ReceiveRequest> requests_;
  std::size_t held_ = 0;  // Held by others, as far as the owner's thread knows.
  std::size_t disowned_ = 0;

  std::mutex mutex_;
  std::vector<ReceiveChunk*> returned_;
  ReceiveRingOwner* owner_;
  bool closed_ = false;
  std::size_t missing_ = 0;                  // Chunks that others hold after close().
  std::shared_ptr<ReceiveRing> kept_alive_;  // The held chunks keep the ring alive.
};

}  // namespace hawser::transport::rdma
