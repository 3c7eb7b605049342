#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "heap/system_page.h"

// Layout of the memory that the two processes share (docs/transports/shared-memory.md). The side that reads it trusts
// nothing: each value is copied once, then checked.
namespace hawser::transport::shm {

inline constexpr std::size_t line_bytes = 64;

inline constexpr std::size_t ring_bytes_min = 64 * 1024;
inline constexpr std::size_t ring_bytes_max = std::size_t{64} << 20;
inline constexpr std::size_t slab_bytes_max = std::size_t{1} << 30;

// A slab is allocated in chunks. The first chunk identifies a region.
inline constexpr std::size_t chunks_max = 256;
inline constexpr std::size_t chunk_bytes_min = 16 * 1024;

// Limit of payloads that wait to be read from the sender's memory at the same time.
inline constexpr std::size_t reads_max = 64;
inline constexpr std::size_t read_pieces_max = 3;  // Limit of the pieces of one such payload.
// A payload that was offered to be read and that the receiver does not read is copied through memory of this size, part
// by part.
inline constexpr std::size_t part_bytes = 64 * 1024;

// The two sides. A direction has the index of its sender.
inline constexpr std::size_t server_side = 0;
inline constexpr std::size_t client_side = 1;

// The ends of a ring, in bytes since the start.
struct RingEnds {
  alignas(line_bytes) std::atomic<std::uint64_t> tail;  // Written by the sender: end of the messages.
  // Written by the receiver: end of the bytes that it has released.
  alignas(line_bytes) std::atomic<std::uint64_t> head;
};

// State that one side shows the other.
struct SideState {
  // Bits of wants_*: the side sleeps and must be woken for these events. The side that wakes it clears them.
  alignas(line_bytes) std::atomic<std::uint32_t> asleep;
  alignas(line_bytes) std::atomic<std::uint32_t> reads;  // 1: this side can read the other's memory.
};
inline constexpr std::uint32_t wants_messages = 1;
inline constexpr std::uint32_t wants_room = 2;  // Also for the report that a payload has been read.

// A payload in the sender's own memory.
struct ReadSlot {
  struct Part {
    std::atomic<std::uint64_t> address;
    std::atomic<std::uint64_t> bytes;
  };
  std::atomic<std::uint32_t> state;  // One of read_*.
  std::atomic<std::uint32_t> count;  // Number of pieces.
  std::array<Part, read_pieces_max> pieces;
  std::atomic<std::uint64_t> moved;  // Address of the whole payload when the state is read_moved.
};
static_assert(sizeof(ReadSlot) == line_bytes);
// States of a read slot. The sender offers a payload. It may move the payload to other memory, once, and may withdraw
// it when the connection ends. The receiver sets `done` after reading, unless the state has changed meanwhile: then the
// bytes that it has read are not valid. A receiver that does not read the sender's memory requests parts instead: it
// sets `wanted`, the sender copies the next part and sets `filled`, until the receiver has all parts and sets `done`.
// Each change of the state is a release of what its side has written or read before; the other side acquires it.
inline constexpr std::uint32_t read_offered = 0;
inline constexpr std::uint32_t read_moved = 1;
inline constexpr std::uint32_t read_withdrawn = 2;
inline constexpr std::uint32_t read_done = 3;
inline constexpr std::uint32_t read_wanted = 4;
inline constexpr std::uint32_t read_filled = 5;

struct Control {
  std::array<RingEnds, 2> rings;
  std::array<SideState, 2> sides;
  // Indexed by sender and region: 0 when the sender has filled the region, 1 when the receiver has returned it.
  std::array<std::array<std::atomic<std::uint32_t>, chunks_max>, 2> returned;
  std::array<std::array<ReadSlot, reads_max>, 2> reads;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// The agreed sizes of both sides.
struct Sizes {
  std::size_t ring = 0;
  std::size_t slab = 0;
  std::size_t page = system_page_bytes();  // Rings begin at pages, to be mapped. Both sides have the same system.

  std::size_t control() const noexcept { return (sizeof(Control) + page - 1) / page * page; }
  std::size_t ring_at(std::size_t side) const noexcept { return control() + side * ring; }
  std::size_t part_at(std::size_t side) const noexcept { return control() + 2 * ring + side * part_bytes; }
  std::size_t slab_at(std::size_t side) const noexcept { return part_at(2) + side * slab; }
  std::size_t total() const noexcept { return slab_at(2); }
  std::size_t chunk() const noexcept {
    return slab / chunks_max > chunk_bytes_min ? slab / chunks_max : chunk_bytes_min;
  }
  std::size_t chunks() const noexcept { return slab / chunk(); }
  // True if the sizes are within the bounds of ShmOptions.
  bool valid() const noexcept {
    const auto power_of_two = [](std::size_t n) { return (n & (n - 1)) == 0; };
    return ring >= ring_bytes_min && ring <= ring_bytes_max && power_of_two(ring) && slab <= slab_bytes_max &&
           power_of_two(slab) && (slab == 0 || slab >= chunk_bytes_min);
  }
};

// ---- Messages in a ring ----

inline constexpr std::size_t record_alignment = 16;

enum class RingRecordKind : std::uint32_t {
  whole = 1,       // Head, then the payload at the next multiple of 16.
  slab = 2,        // Head. The payload is in the region `where` of the slab.
  read = 3,        // Head. The payload is to be read from the sender's memory: see the read slot `where`.
  long_begin = 4,  // Empty: head and payload follow in parts.
  long_part = 5,   // The next `head_bytes` bytes of head and payload.
  end = 6,         // The last record.
};

// Every message in a ring begins with a record, at a multiple of 16.
struct RingRecord {
  RingRecordKind kind;
  std::uint32_t head_bytes;
  std::uint32_t payload_bytes;
  std::uint32_t where;
};
static_assert(sizeof(RingRecord) == record_alignment);

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + record_alignment - 1) / record_alignment * record_alignment;
}

}  // namespace hawser::transport::shm
