#include "base/utf8.h"

namespace hawser {

std::size_t utf8_character_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t count, unsigned char least, unsigned char most) -> std::size_t {
    if (text.size() < count || byte(1) < least || byte(1) > most) return 0;
    for (std::size_t i = 2; i < count; ++i) {
      if ((byte(i) & 0xC0) != 0x80) return 0;
    }
    return count;
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(2, 0x80, 0xBF);
  if (first == 0xE0) return follows(3, 0xA0, 0xBF);
  if (first == 0xED) return follows(3, 0x80, 0x9F);
  if (first >= 0xE1 && first <= 0xEF) return follows(3, 0x80, 0xBF);
  if (first == 0xF0) return follows(4, 0x90, 0xBF);
  if (first >= 0xF1 && first <= 0xF3) return follows(4, 0x80, 0xBF);
  if (first == 0xF4) return follows(4, 0x80, 0x8F);
  return 0;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t bytes = utf8_character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace hawser
