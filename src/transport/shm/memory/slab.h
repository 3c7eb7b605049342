#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/external_block.h"
#include "transport/shm/memory/shared_memory.h"

namespace hawser::transport::shm {

// The sender's side of a slab: gives out regions of it, and takes back those that the receiver has let go of.
class SlabWriter {
 public:
  static constexpr std::size_t none = SIZE_MAX;

  SlabWriter(const SharedMemory& memory, std::size_t side) noexcept;

  // A region for `bytes` bytes, not 0, named by its first chunk; `none` if there is none. The lowest one, so that a
  // slab of which little is in use stays in the cache.
  std::size_t acquire(std::size_t bytes) noexcept;
  std::byte* at(std::size_t region) const noexcept { return slab_ + region * chunk_bytes_; }

 private:
  void reclaim() noexcept;

  const SharedMemory& memory_;
  const std::size_t side_;
  std::byte* const slab_;
  const std::size_t chunk_bytes_;
  const std::size_t chunks_;
  std::array<std::atomic<std::uint32_t>, chunks_max>& returned_;
  std::bitset<chunks_max> used_;
  std::array<std::uint16_t, chunks_max> length_{};  // Of the region that begins there, in chunks.
  std::array<std::uint16_t, chunks_max> loaned_{};  // The regions that the receiver has.
  std::size_t loaned_count_ = 0;
};

// The receiver's side: counts who still reads in a region, and returns it to the sender when nobody does. Lives for as
// long as any region is lent; that may be longer than the connection, and end on any thread.
class SlabReader {
 public:
  // Of the slab that `side` writes.
  static SlabReader* create(std::shared_ptr<SharedMemory> memory, std::size_t side);
  // The connection does not need it any more.
  void drop() noexcept { release(); }

  // Where the payload of `bytes` bytes in `region` lies; null if the peer can't have put one there.
  const std::byte* find(std::size_t region, std::size_t bytes) const noexcept;
  // Whether what find() gave can be touched: false if the system has no memory for it.
  bool supply(std::size_t region, std::size_t bytes) const noexcept {
    return memory_->supply_slab(side_, region * chunk_bytes_, bytes);
  }
  // Counts the references to a region that find() gave: it has one, which is the caller's.
  Block* loan(std::size_t region);
  // Returns such a region at once instead.
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
    std::atomic<bool> loaned{false};
  };

  SlabReader(std::shared_ptr<SharedMemory> memory, std::size_t side);
  void release() noexcept;

  const std::shared_ptr<SharedMemory> memory_;
  const std::size_t side_;
  const std::byte* const slab_;
  const std::size_t slab_bytes_;
  const std::size_t chunk_bytes_;
  std::array<std::atomic<std::uint32_t>, chunks_max>& returned_;
  std::atomic<std::size_t> references_{1};  // The connection's, and one for each region that is lent.
  std::array<std::unique_ptr<Region>, chunks_max> regions_;
};

}  // namespace hawser::transport::shm
