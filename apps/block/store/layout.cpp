#include "block/store/layout.h"

#include <bit>
#include <cstring>

#include "hawser/crc32c.h"

namespace hawser::block {

// Numbers of the format are little-endian, and are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

namespace {

constexpr char magic[] = {'H', 'A', 'W', 'S', 'E', 'R', 'B', 'V'};
constexpr std::uint32_t format_version = 1;
constexpr std::uint32_t preallocated_flag = 1;
constexpr std::size_t superblock_crc_offset = superblock_bytes - 4;

template <class T>
void put(MutableBytes bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}
template <class T>
T get(Bytes bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

bool all_zeros(Bytes bytes) noexcept {
  return bytes.front() == std::byte{} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

std::array<std::byte, superblock_bytes> encode(const Superblock& superblock) {
  std::array<std::byte, superblock_bytes> bytes{};
  put(bytes, 0, magic);
  put(bytes, 8, format_version);
  put(bytes, 12, static_cast<std::uint32_t>(block_bytes));
  put(bytes, 16, superblock.size);
  put(bytes, 24, superblock.generation);
  put(bytes, 32, superblock.uuid);
  put(bytes, 48, superblock.preallocated ? preallocated_flag : 0U);
  put(bytes, 52, static_cast<std::uint32_t>(region_bytes));
  put(bytes, 56, superblock.resize_size);
  put(bytes, superblock_crc_offset, crc32c(Bytes(bytes).first(superblock_crc_offset)));
  return bytes;
}

std::optional<Superblock> decode_superblock(Bytes bytes) {
  if (bytes.size() != superblock_bytes || std::memcmp(bytes.data(), magic, sizeof(magic)) != 0) return std::nullopt;
  if (get<std::uint32_t>(bytes, superblock_crc_offset) != crc32c(bytes.first(superblock_crc_offset))) {
    return std::nullopt;
  }
  const auto flags = get<std::uint32_t>(bytes, 48);
  Superblock superblock{.size = get<std::uint64_t>(bytes, 16),
                        .generation = get<std::uint64_t>(bytes, 24),
                        .uuid = get<Uuid>(bytes, 32),
                        .preallocated = (flags & preallocated_flag) != 0,
                        .resize_size = get<std::uint64_t>(bytes, 56)};
  if (get<std::uint32_t>(bytes, 8) != format_version || get<std::uint32_t>(bytes, 12) != block_bytes ||
      get<std::uint32_t>(bytes, 52) != region_bytes || (flags & ~preallocated_flag) != 0 || superblock.size == 0 ||
      superblock.size > volume_bytes_max || superblock.size % block_bytes != 0 ||
      superblock.resize_size > volume_bytes_max) {
    return std::nullopt;
  }
  return superblock;
}

Checksummer::Checksummer(const Uuid& uuid, bool computes_entries) noexcept
    : seed_(crc32c(uuid)), computes_entries_(computes_entries) {}

std::uint32_t Checksummer::entry(std::uint64_t block, Bytes bytes) const noexcept {
  if (all_zeros(bytes)) return 0;
  if (!computes_entries_) return 1;
  const std::uint32_t place = crc32c(seed_, std::as_bytes(std::span(&block, 1)));
  const std::uint32_t crc = crc32c(place, bytes);
  return crc != 0 ? crc : 1;
}

std::uint32_t Checksummer::marks(std::uint64_t sector, Bytes bits) const noexcept {
  const std::uint32_t place = crc32c(~seed_, std::as_bytes(std::span(&sector, 1)));
  return crc32c(place, bits);
}

// The sectors of the list have other numbers than those of marks.
std::uint32_t Checksummer::damage(std::uint64_t sector, Bytes blocks) const noexcept {
  return marks(sector | std::uint64_t{1} << 63, blocks);
}

}  // namespace hawser::block
