#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/external_block.h"
#include "hawser/error.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/memory_pool.h"

namespace hawser::transport::rdma {

class ReceiveRing;

// A chunk that packets are received into and read in. While lent, its references are counted like any block's.
class ReceiveChunk final : public ExternalBlock {
 public:
  ReceiveChunk(ReceiveRing& ring, const RegisteredMemory& memory, std::uint32_t index) noexcept;
  const std::byte* bytes() const noexcept { return memory_.data; }

  // Of the packet that it holds or held last.
  std::uint32_t queue_pair = 0;
  bool weighty = false;

 private:
  friend class ReceiveRing;
  bool disowned_ = false;
  ReceiveRing& ring_;
  const RegisteredMemory memory_;
  const std::uint32_t index_;
};

// Is told that chunks can be posted again. Any thread, also from within ReceiveRing::finish().
class ReceiveRingOwner {
 public:
  virtual void chunks_returned() noexcept = 0;

 protected:
  ~ReceiveRingOwner() = default;
};

// The chunks posted to one receive queue: a queue pair's own, or one shared by a loop's connections. Used by one
// thread, except that any may drop the last reference to a chunk.
class ReceiveRing : public std::enable_shared_from_this<ReceiveRing> {
 public:
  // Marks the ids of receives, so that a completion that has failed tells what it was.
  static constexpr std::uint64_t id_bit = std::uint64_t{1} << 63;

  ReceiveRing(std::shared_ptr<MemoryPool> pool, std::size_t chunk_bytes, ReceiveRingOwner& owner);
  ReceiveRing(const ReceiveRing&) = delete;
  ReceiveRing& operator=(const ReceiveRing&) = delete;
  ~ReceiveRing();

  // `count` more chunks, to be posted by the next repost().
  Result<void> grow(std::size_t count);
  // Posts what is free; `posted` is told of each chunk that had held a packet.
  using Post = std::function<Result<void>(std::span<const ReceiveRequest>)>;
  using Posted = std::function<void(const ReceiveChunk&, std::uint32_t queue_pair)>;
  Result<void> repost(const Post& post, const Posted& posted);
  std::size_t waiting() const noexcept { return free_.size(); }

  // The chunk of a receive that has completed; null if there is no such id.
  ReceiveChunk* completed(std::uint64_t id) noexcept;
  // It has been read, apart from what others hold of it.
  void finish(ReceiveChunk& chunk) noexcept;
  // The queue pair is gone: chunks that it has used up are nobody's until they are posted again.
  void disown(std::uint32_t queue_pair) noexcept;
  std::size_t disowned() const noexcept { return disowned_; }
  // Chunks that others hold.
  std::size_t held() const noexcept { return held_; }
  std::size_t size() const noexcept { return chunks_.size(); }
  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

  // Takes over what other threads have returned.
  void collect() noexcept;
  // Nothing is posted any more, and the device has let go. Memory that nobody holds is given back; the rest as it
  // returns.
  void close() noexcept;

 private:
  friend class ReceiveChunk;
  static void returned(ExternalBlock& block) noexcept;

  const std::shared_ptr<MemoryPool> pool_;
  const std::size_t chunk_bytes_;
  std::vector<std::unique_ptr<ReceiveChunk>> chunks_;
  std::vector<ReceiveChunk*> free_;
  std::vector<ReceiveChunk*> taken_;  // Scratch of collect().
  std::vector<ReceiveRequest> requests_;
  std::size_t held_ = 0;  // By others, as far as the owner's thread knows.
  std::size_t disowned_ = 0;

  std::mutex mutex_;
  std::vector<ReceiveChunk*> returned_;
  ReceiveRingOwner* owner_;
  bool closed_ = false;
  std::size_t missing_ = 0;                  // Chunks that others hold, once closed.
  std::shared_ptr<ReceiveRing> kept_alive_;  // By them.
};

}  // namespace hawser::transport::rdma
