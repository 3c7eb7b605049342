#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "heap/external_block.h"
#include "transport/shm/memory/chunk_map.h"
#include "transport/shm/memory/shared_memory.h"
#include "transport/shm/memory/slab_loan.h"

namespace hawser::transport::shm {

// The sender's side of a slab. It allocates regions, and takes back regions that the receiver has returned.
class SlabWriter {
 public:
  static constexpr std::size_t none = ChunkMap::none;
  // Regions are allocated in turn, and from the bottom again after rotation_bytes of payloads. The receiver's processor
  // has the lines of a region that was read just now. Writing these lines again costs a transfer between the processors
  // for each of them, which takes several times as long as the copy. After 2 MiB of other payloads, the lines have left
  // the processor's own caches (decision 56).
  static constexpr std::size_t rotation_bytes = std::size_t{2} << 20;
  // Limit of the part of the slab that is used in turn, for payloads that do not fill their chunks, and its least
  // length in a slab with large chunks.
  static constexpr std::size_t rotation_span_bytes = 2 * rotation_bytes;
  static constexpr std::size_t rotation_chunks_min = 8;

  SlabWriter(const SharedMemory& memory, std::size_t side) noexcept;
  SlabWriter(const SlabWriter&) = delete;
  SlabWriter& operator=(const SlabWriter&) = delete;
  ~SlabWriter();

  // Allocates a region for `bytes` bytes, not 0. The result is the region's first chunk, or `none` if there is no room.
  // It is the next free region of the rotation. If the rotation has no room, it is the lowest free region, so that a
  // slab that is used little needs few pages.
  std::size_t acquire(std::size_t bytes) noexcept;
  std::byte* at(std::size_t region) const noexcept { return slab_ + region * chunk_bytes_; }
  // Returns a region of which the peer has not been notified. Only this thread has written to it.
  void give_back(std::size_t region) noexcept { returned_[region].store(1, std::memory_order_relaxed); }

  // Loans a region of `bytes` bytes, not 0, to the application. Empty if there is no room, or if the application would
  // have more than half of the slab. `memory` is the one of this slab. May throw std::bad_alloc.
  Buffer loan(std::size_t bytes, const std::shared_ptr<const SharedMemory>& memory);
  // The region to send if a payload of `bytes` bytes begins where a loan begins, or `none`. The peer has the region
  // from now on. A region that the peer has already is not sent a second time at once: `none`.
  std::size_t send_loan(const std::byte* payload, std::size_t bytes) noexcept {
    return loans_ == nullptr ? none : find_loan(payload, bytes);
  }

 private:
  struct Loans {
    std::array<SlabLoan*, chunks_max> of{};  // By the first chunk of a region. Idle ones are used again.
    std::size_t chunks = 0;                  // Chunks that the application has.
  };

  void reclaim() noexcept;
  bool has_ended(std::size_t region) noexcept;
  std::size_t find_loan(const std::byte* payload, std::size_t bytes) noexcept;
  void use(std::size_t region, std::size_t wanted) noexcept;

  const SharedMemory& memory_;
  const std::size_t side_;
  std::byte* const slab_;
  const std::size_t chunk_bytes_;
  const std::size_t chunks_;
  const std::size_t rotation_;  // Length of the part that is used in turn, in chunks.
  std::array<std::atomic<std::uint32_t>, chunks_max>& returned_;
  ChunkMap used_;
  std::array<std::uint16_t, chunks_max> length_{};  // Length of the region that begins there, in chunks.
  std::array<std::uint16_t, chunks_max> loaned_{};  // Regions that the receiver or the application has.
  std::size_t loaned_count_ = 0;
  std::size_t next_ = 0;           // Chunk behind the region that the rotation gave out last.
  std::size_t rotated_bytes_ = 0;  // Payloads since the rotation began at the bottom.
  std::unique_ptr<Loans> loans_;   // Null until the first loan.
};

// The receiver's side of a slab. It counts the users of a region, and returns the region to the sender when there are
// none. It lives as long as any region is on loan. That may be longer than the connection, and its life may end on any
// thread.
class SlabReader {
 public:
  // For the slab that `side` writes.
  static SlabReader* create(std::shared_ptr<SharedMemory> memory, std::size_t side);
  // The connection does not need it any more.
  void drop() noexcept { release(); }

  // Returns the payload of `bytes` bytes in `region`. Null if the peer cannot have put one there.
  const std::byte* find(std::size_t region, std::size_t bytes) const noexcept;
  // True if the memory that find() returned can be touched. False if the system has no memory for it.
  bool supply(std::size_t region, std::size_t bytes) const noexcept {
    return memory_->supply_slab(side_, region * chunk_bytes_, bytes);
  }
  // Begins counting the references to a region that find() returned. The caller owns the first one.
  Block* loan(std::size_t region);
  // Returns such a region to the sender at once, without a loan.
  void release(std::size_t region) noexcept;

 private:
  class Region final : public ExternalBlock {
   public:
    explicit Region(SlabReader& owner, std::size_t index) noexcept
        : ExternalBlock(&Region::returned), reader(owner), number(index) {}
    static void returned(ExternalBlock& block) noexcept;
    using ExternalBlock::loan;
    SlabReader& reader;
    const std::size_t number;
    std::atomic<bool> loaned{false};  // Cleared before the region returns, so it is clear when the region comes again.
  };

  SlabReader(std::shared_ptr<SharedMemory> memory, std::size_t side);
  void release() noexcept;

  const std::shared_ptr<SharedMemory> memory_;
  const std::size_t side_;
  const std::byte* const slab_;
  const std::size_t slab_bytes_;
  const std::size_t chunk_bytes_;
  std::array<std::atomic<std::uint32_t>, chunks_max>& returned_;
  std::atomic<std::size_t> references_{1};  // One for the connection, and one for each region that is on loan.
  std::array<std::unique_ptr<Region>, chunks_max> regions_;
};

}  // namespace hawser::transport::shm
