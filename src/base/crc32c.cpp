#include "hawser/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace hawser {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() noexcept {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> table = make_table();

std::uint32_t by_table(std::uint32_t crc, Bytes bytes) noexcept {
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<std::uint32_t>(byte)) & 0xffU];
  return crc;
}

// The instruction of the processor: CRC32C_TARGET lets a function use it, which has_instruction() permits.
#if defined(__x86_64__)
#define CRC32C_TARGET __attribute__((target("sse4.2")))
CRC32C_TARGET inline std::uint32_t add_word(std::uint32_t crc, std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
}
CRC32C_TARGET inline std::uint32_t add_byte(std::uint32_t crc, std::byte byte) noexcept {
  return __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(byte));
}
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
#define CRC32C_TARGET __attribute__((target("+crc")))
CRC32C_TARGET inline std::uint32_t add_word(std::uint32_t crc, std::uint64_t word) noexcept {
  return __crc32cd(crc, word);
}
CRC32C_TARGET inline std::uint32_t add_byte(std::uint32_t crc, std::byte byte) noexcept {
  return __crc32cb(crc, static_cast<std::uint8_t>(byte));
}
bool has_instruction() noexcept { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#if defined(CRC32C_TARGET)
// A linear map of checksums over GF(2): the image of each bit.
using BitMap = std::array<std::uint32_t, 32>;

constexpr std::uint32_t image_of(const BitMap& map, std::uint32_t value) noexcept {
  std::uint32_t image = 0;
  for (std::size_t bit = 0; bit < 32; ++bit) {
    if ((value >> bit & 1U) != 0) image ^= map[bit];
  }
  return image;
}

// Maps the checksum of some bytes to the checksum of the same bytes followed by `zeros` zero bytes, by four lookups.
class ZerosAppended {
 public:
  explicit constexpr ZerosAppended(std::size_t zeros) noexcept {
    BitMap power{};  // Appends 1, 2, 4, ... zero bytes.
    BitMap all{};
    for (std::size_t bit = 0; bit < 32; ++bit) {
      const std::uint32_t value = std::uint32_t{1} << bit;
      power[bit] = (value >> 8) ^ table[value & 0xffU];
      all[bit] = value;
    }
    for (std::size_t rest = zeros; rest != 0; rest /= 2) {
      BitMap squared{};
      BitMap product{};
      for (std::size_t bit = 0; bit < 32; ++bit) {
        squared[bit] = image_of(power, power[bit]);
        product[bit] = image_of(power, all[bit]);
      }
      if (rest % 2 != 0) all = product;
      power = squared;
    }
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      for (std::size_t place = 0; place < 4; ++place) images_[place][byte] = image_of(all, byte << (8 * place));
    }
  }

  std::uint32_t operator()(std::uint32_t crc) const noexcept {
    return images_[0][crc & 0xffU] ^ images_[1][crc >> 8 & 0xffU] ^ images_[2][crc >> 16 & 0xffU] ^
           images_[3][crc >> 24];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> images_{};
};

inline std::uint64_t word_at(const std::byte* data) noexcept {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// Computes three parts of `lane` bytes at once, since the instruction takes three cycles and one can begin in each.
// Advances `data`.
template <std::size_t lane>
CRC32C_TARGET std::uint32_t three_lanes(std::uint32_t crc, const std::byte*& data) noexcept {
  static constexpr ZerosAppended behind(lane);
  std::uint32_t second = 0;
  std::uint32_t third = 0;
  for (std::size_t at = 0; at < lane; at += 8) {
    crc = add_word(crc, word_at(data + at));
    second = add_word(second, word_at(data + lane + at));
    third = add_word(third, word_at(data + 2 * lane + at));
  }
  data += 3 * lane;
  return behind(behind(crc) ^ second) ^ third;
}

CRC32C_TARGET std::uint32_t by_instruction(std::uint32_t crc, Bytes bytes) noexcept {
  constexpr std::size_t long_lane = 4096;
  constexpr std::size_t page_lane = 1360;  // Three of them are a page of 4,096 bytes, but for 16 bytes.
  constexpr std::size_t short_lane = 256;
  const std::byte* data = bytes.data();
  const std::byte* const end = data + bytes.size();
  const auto left = [&] { return static_cast<std::size_t>(end - data); };
  while (left() >= 3 * long_lane) crc = three_lanes<long_lane>(crc, data);
  while (left() >= 3 * page_lane) crc = three_lanes<page_lane>(crc, data);
  while (left() >= 3 * short_lane) crc = three_lanes<short_lane>(crc, data);
  for (; left() >= 8; data += 8) crc = add_word(crc, word_at(data));
  for (; data != end; ++data) crc = add_byte(crc, *data);
  return crc;
}
#else
std::uint32_t by_instruction(std::uint32_t crc, Bytes bytes) noexcept { return by_table(crc, bytes); }
bool has_instruction() noexcept { return false; }
#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, Bytes bytes) noexcept {
  static const bool fast = has_instruction();
  crc = ~crc;
  crc = fast ? by_instruction(crc, bytes) : by_table(crc, bytes);
  return ~crc;
}

}  // namespace hawser
