#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "hawser/bytes.h"

// The format of the side file of a volume, to the byte: docs/block.md. No I/O.
namespace hawser::block {

inline constexpr std::uint64_t block_bytes = 4096;
inline constexpr std::uint64_t region_bytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t region_blocks = region_bytes / block_bytes;
inline constexpr std::uint64_t volume_bytes_max = std::uint64_t{16} << 40;

inline constexpr std::uint64_t superblock_bytes = 4096;
inline constexpr unsigned superblock_slots = 2;
inline constexpr std::uint64_t marks_offset = superblock_slots * superblock_bytes;
// A disk writes a sector whole or not at all.
inline constexpr std::uint64_t sector_bytes = 512;
// The place of the checksum in sectors of marks and of the list of damaged blocks.
inline constexpr std::size_t sector_crc_offset = sector_bytes - 4;
inline constexpr std::uint64_t mark_sector_regions = (sector_bytes - 8) * 8;
inline constexpr std::uint64_t checksums_offset = std::uint64_t{4} << 20;

// The list of damaged blocks.
inline constexpr std::uint64_t damage_offset = std::uint64_t{3} << 20;
inline constexpr std::uint64_t damage_sectors = 1024;
inline constexpr std::uint64_t damage_sector_blocks = (sector_bytes - 8) / 8;
inline constexpr std::uint64_t damage_blocks_max = damage_sectors * damage_sector_blocks;

static_assert(marks_offset + (volume_bytes_max / region_bytes / mark_sector_regions + 1) * sector_bytes <=
              damage_offset);
static_assert(damage_offset + damage_sectors * sector_bytes <= checksums_offset);

using Uuid = std::array<std::byte, 16>;

struct Superblock {
  std::uint64_t size = 0;  // Bytes of the volume, a multiple of block_bytes.
  std::uint64_t generation = 0;
  Uuid uuid = {};
  // All of the volume's space is reserved, and discards keep it so.
  bool preallocated = false;
  // Not 0 during a resize: the files may be as large as those of a volume of this size.
  std::uint64_t resize_size = 0;

  friend bool operator==(const Superblock&, const Superblock&) = default;
};

std::array<std::byte, superblock_bytes> encode(const Superblock& superblock);
// Empty if the bytes are not a superblock of this version, or are damaged.
std::optional<Superblock> decode_superblock(Bytes bytes);

// Computes the checksums of a volume. Each one covers the volume's id and its own place, so that what was written to
// another place is found.
class Checksummer {
 public:
  // Without `computes_entries`, the entry of a block with data is 1, whatever they are.
  explicit Checksummer(const Uuid& uuid, bool computes_entries = true) noexcept;

  // The entry of a block in the table: 0 for a block of zeros only, otherwise not 0.
  std::uint32_t entry(std::uint64_t block, Bytes bytes) const noexcept;
  // The checksum in a sector of marks.
  std::uint32_t marks(std::uint64_t sector, Bytes bits) const noexcept;
  // The checksum in a sector of the list of damaged blocks.
  std::uint32_t damage(std::uint64_t sector, Bytes blocks) const noexcept;

 private:
  std::uint32_t seed_;
  bool computes_entries_;
};

// Offset of a block's entry in the side file.
constexpr std::uint64_t entry_offset(std::uint64_t block) noexcept { return checksums_offset + block * 4; }
constexpr std::uint64_t side_bytes(std::uint64_t volume_bytes) noexcept {
  return entry_offset(volume_bytes / block_bytes);
}

}  // namespace hawser::block
