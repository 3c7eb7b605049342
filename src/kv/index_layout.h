#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/crc32c.h"

// The index that clients read without calls: its layout, for the owner and for readers. docs/kv.md has it to the byte.
namespace hawser::kv {

// Sizes of an index: a header, the buckets, one bucket more so that each has a right neighbour, and a ring of values
// that do not fit into a cell.
struct IndexGeometry {
  static constexpr std::size_t cell_bytes = 128;
  static constexpr std::size_t bucket_cells = 4;
  static constexpr std::size_t bucket_bytes = cell_bytes * bucket_cells;
  static constexpr std::size_t header_bytes = bucket_bytes;
  // A key lies in one of these cells: those of its bucket and of the next one, which one read covers.
  static constexpr std::size_t candidates = 2 * bucket_cells;
  static constexpr std::size_t candidate_bytes = 2 * bucket_bytes;
  static constexpr std::uint64_t buckets_max = std::uint64_t{1} << 32;
  static constexpr std::uint64_t ring_bytes_max = std::uint64_t{1} << 40;
  // Longest value in the ring.
  static constexpr std::size_t value_bytes_max = 64 * 1024;

  std::uint64_t buckets = 0;     // A power of two.
  std::uint64_t ring_bytes = 0;  // A multiple of 64.

  // False for numbers that no owner uses: a reader checks what a server sends.
  bool valid() const noexcept {
    return buckets != 0 && buckets <= buckets_max && (buckets & (buckets - 1)) == 0 && ring_bytes <= ring_bytes_max &&
           ring_bytes % 64 == 0;
  }
  std::uint64_t cells() const noexcept { return (buckets + 1) * bucket_cells; }
  std::uint64_t ring_offset() const noexcept { return header_bytes + (buckets + 1) * bucket_bytes; }
  std::uint64_t bytes() const noexcept { return ring_offset() + ring_bytes; }
  // Offset of the candidates of a key.
  std::uint64_t candidates_offset(std::uint64_t hash) const noexcept {
    return header_bytes + (hash & (buckets - 1)) * bucket_bytes;
  }
  // The candidate that is tried first.
  static std::size_t first_candidate(std::uint64_t hash) noexcept { return (hash >> 40) % candidates; }
};

// Words of the header. The owner writes them; readers of mapped memory read them.
struct IndexHeader {
  static constexpr std::size_t identity_word = 0;     // Random: the file is the one that the directory names.
  static constexpr std::size_t valid_until_word = 1;  // Nanoseconds of CLOCK_MONOTONIC. See IndexPublication.
};

enum class CellKind : std::uint8_t {
  free = 0,
  inside = 1,  // The value follows the key.
  ring = 2,    // The value lies in the ring; its place precedes the key.
};

struct CellHead {
  std::uint32_t crc;  // CRC32C of the rest of the cell, up to the end of the key or the value.
  std::uint32_t generation;
  std::uint64_t hash;
  std::uint64_t version;
  std::uint32_t value_bytes;
  std::uint16_t key_bytes;
  CellKind kind;
  std::uint8_t zero;
};
static_assert(sizeof(CellHead) == 32);

// Place of a value in the ring.
struct RingPlace {
  std::uint64_t offset;  // From the beginning of the index.
  std::uint32_t crc;     // CRC32C of the value.
  std::uint32_t zero;
};
static_assert(sizeof(RingPlace) == 16);

constexpr std::size_t cell_payload_max = IndexGeometry::cell_bytes - sizeof(CellHead);
constexpr std::size_t ring_key_max = cell_payload_max - sizeof(RingPlace);

// Number of payload bytes; more than cell_payload_max if the cell is invalid.
inline std::size_t payload_bytes(const CellHead& head) noexcept {
  return std::size_t{head.key_bytes} + (head.kind == CellKind::inside ? head.value_bytes : sizeof(RingPlace));
}

inline std::uint32_t cell_crc(Bytes cell, std::size_t payload) noexcept {
  return crc32c(cell.subspan(sizeof(CellHead::crc), sizeof(CellHead) - sizeof(CellHead::crc) + payload));
}

// The entry that a reader wants to find.
struct CellWanted {
  std::string_view key;
  std::uint64_t hash = 0;
  std::uint32_t generation = 0;
  // False: torn cells are not detected. Only for a test that shows what the checksum prevents.
  bool verify = true;
};

// A verified cell. The views point into the bytes that were given.
struct CellFound {
  std::uint64_t version = 0;
  std::string_view value;            // If it lies inside.
  std::optional<RingPlace> outside;  // Else.
  std::uint32_t value_bytes = 0;
};

// Returns the content of a copy of a cell if it is the entry of that key. Anything may be in the bytes.
inline std::optional<CellFound> parse_cell(Bytes cell, const CellWanted& wanted) noexcept {
  CellHead head;
  std::memcpy(&head, cell.data(), sizeof head);
  if (head.hash != wanted.hash || head.generation != wanted.generation) return std::nullopt;
  if (head.kind != CellKind::inside && head.kind != CellKind::ring) return std::nullopt;
  if (head.key_bytes != wanted.key.size() || head.value_bytes > IndexGeometry::value_bytes_max) return std::nullopt;
  const std::size_t payload = payload_bytes(head);
  if (payload > cell_payload_max) return std::nullopt;
  if (wanted.verify && cell_crc(cell, payload) != head.crc) return std::nullopt;
  const char* at = reinterpret_cast<const char*>(cell.data()) + sizeof head;
  CellFound found{.version = head.version, .value = {}, .outside = {}, .value_bytes = head.value_bytes};
  if (head.kind == CellKind::ring) {
    RingPlace place;
    std::memcpy(&place, at, sizeof place);
    found.outside = place;
    at += sizeof place;
  }
  if (std::string_view(at, head.key_bytes) != wanted.key) return std::nullopt;
  if (head.kind == CellKind::inside) found.value = {at + head.key_bytes, head.value_bytes};
  return found;
}

// Copies between memory that another process or device accesses at the same time and memory of this thread. Both begin
// at multiples of 8. Nothing depends on the order of the copied words: a checksum detects torn cells and values.
inline void copy_from_shared(std::uint64_t* to, const std::uint64_t* from, std::size_t words) noexcept {
  for (std::size_t i = 0; i < words; ++i) to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
}
inline void copy_to_shared(std::uint64_t* to, const std::uint64_t* from, std::size_t words) noexcept {
  for (std::size_t i = 0; i < words; ++i) __atomic_store_n(to + i, from[i], __ATOMIC_RELAXED);
}

}  // namespace hawser::kv
