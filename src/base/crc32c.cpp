#include "base/crc32c.h"

#include <array>

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

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t crc, Bytes bytes) noexcept {
  std::uint64_t wide = crc;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; at < bytes.size(); ++at) crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(bytes[at]));
  return crc;
}
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
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
