#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hawser {

// Appends `text`, which may come from a peer, to a line of a log: printable ASCII as it is, a backslash and every other
// byte as \xNN. At most `bytes_max` bytes are appended; a text that is longer ends with "...".
inline void append_escaped(std::string& line, std::string_view text, std::size_t bytes_max) {
  static constexpr std::string_view digits = "0123456789abcdef";
  static constexpr std::string_view cut = "...";
  static constexpr std::size_t escape_bytes = 4;
  const std::size_t begin = line.size();
  std::size_t whole = begin;  // End of the characters behind which there is room for `cut`.
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x7f && c != '\\';
    if (line.size() - begin + (plain ? 1 : escape_bytes) > bytes_max) {
      line.resize(whole);
      line += cut.substr(0, bytes_max - (whole - begin));
      return;
    }
    if (plain) {
      line += c;
    } else {
      line += "\\x";
      line += digits[byte >> 4];
      line += digits[byte & 15];
    }
    if (line.size() - begin + cut.size() <= bytes_max) whole = line.size();
  }
}

}  // namespace hawser
