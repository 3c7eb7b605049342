#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

#include "kv/index_layout.h"

namespace hawser::kv {

// The owner's side of an index: copies of entries without expiry, in memory that clients read at any time. An entry
// that finds no free cell replaces another one, so a missing entry means nothing. One thread only. The memory outlives
// this object, is zero at the beginning, and is written by this object alone.
class RemoteIndex {
 public:
  // `memory` begins at a multiple of 64 and has geometry.bytes() bytes. `generation` is not 0.
  RemoteIndex(MutableBytes memory, const IndexGeometry& geometry, std::uint32_t generation) noexcept;

  // Inserts the entry, or changes it. An entry that is too long for the index is removed instead.
  void put(std::string_view key, std::uint64_t hash, std::string_view value, std::uint64_t version);
  void remove(std::string_view key, std::uint64_t hash) noexcept;
  bool contains(std::string_view key, std::uint64_t hash) const noexcept;
  // Removes all entries. Reads that began before may still return them.
  void clear() noexcept;

  const IndexGeometry& geometry() const noexcept { return geometry_; }
  std::uint32_t generation() const noexcept { return generation_; }
  std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr std::uint64_t no_cell = ~std::uint64_t{0};
  struct RingValue {
    std::uint64_t begin;  // Offset in the ring, and the end behind it.
    std::uint64_t end;
    std::uint64_t cell;
    std::uint64_t version;
  };

  std::byte* at(std::uint64_t cell) const noexcept {
    return memory_.data() + IndexGeometry::header_bytes + cell * IndexGeometry::cell_bytes;
  }
  CellHead head(std::uint64_t cell) const noexcept;
  std::uint64_t find(std::string_view key, std::uint64_t hash) const noexcept;
  std::uint64_t place_for(std::uint64_t hash) noexcept;
  void erase(std::uint64_t cell) noexcept;
  RingPlace add_to_ring(std::string_view value, std::uint64_t cell, std::uint64_t version);

  const MutableBytes memory_;
  const IndexGeometry geometry_;
  const std::uint32_t generation_;
  std::uint64_t size_ = 0;
  std::uint64_t replaced_ = 0;
  std::uint64_t ring_next_ = 0;
  std::deque<RingValue> ring_;  // In the order of their places, the oldest first.
};

}  // namespace hawser::kv
