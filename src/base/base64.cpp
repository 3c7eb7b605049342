#include "base/base64.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hawser {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

int decode_base64_group(std::string_view four, bool last, std::array<char, 3>& out) {
  const int padding = !last ? 0 : four[3] != '=' ? 0 : four[2] != '=' ? 1 : 2;
  std::uint32_t bits = 0;
  for (int k = 0; k < 4; ++k) {
    const int digit = k >= 4 - padding ? 0 : digit_of(four[static_cast<std::size_t>(k)]);
    if (digit < 0) return -1;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
  }
  if ((bits & ((1U << (8 * padding)) - 1)) != 0) return -1;
  for (int k = 0; k < 3 - padding; ++k) out[static_cast<std::size_t>(k)] = static_cast<char>(bits >> (16 - 8 * k));
  return 3 - padding;
}

void encode_base64(std::string_view bytes, std::string& out) {
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out.push_back(k <= count ? alphabet[bits >> (18 - 6 * k) & 63] : '=');
    }
  }
}

}  // namespace hawser
