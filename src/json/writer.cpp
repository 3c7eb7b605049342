#include "json/writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "base/utf8.h"

namespace hawser::json {
namespace {

void append_code(std::string& out, unsigned code) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\u";
  for (unsigned shift = 16; shift != 0;) {
    shift -= 4;
    out += digits[code >> shift & 15];
  }
}

// The code of a character of more than one byte that is escaped; 0 for all others.
unsigned escaped_code(std::string_view character) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 2 && byte(0) == 0xC2 && byte(1) < 0xA0) return byte(1);
  const bool line_end = character.size() == 3 && byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) & 0xFE) == 0xA8;
  return line_end ? 0x2000U + (byte(2) & 0x3F) : 0;
}

bool stands_as_it_is(unsigned char c, Escapes escapes) noexcept {
  if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\') return false;
  return escapes == Escapes::text || (c != '<' && c != '>' && c != '&');
}

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\t': out += "\\t"; break;
    default: append_code(out, static_cast<unsigned char>(c)); break;
  }
}

template <class T>
void append_digits(std::string& out, T number) {
  std::array<char, 40> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

template <class T>
void append_floating(std::string& out, T number) {
  if (!std::isfinite(number)) {
    out += "null";
  } else {
    append_digits(out, number);
  }
}

}  // namespace

void append_characters(std::string& out, std::string_view text, Escapes escapes) {
  std::size_t begin = 0;  // The characters from here to `at` are copied as they are.
  std::size_t at = 0;
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (stands_as_it_is(c, escapes)) {
      ++at;
      continue;
    }
    const std::size_t bytes = c < 0x80 ? 1 : utf8_character_bytes(text.substr(at));
    const unsigned code = bytes > 1 ? escaped_code(text.substr(at, bytes)) : 0;
    if (bytes > 1 && code == 0) {
      at += bytes;
      continue;
    }
    out.append(text, begin, at - begin);
    if (bytes == 1) {
      append_ascii(out, text[at]);
    } else {
      append_code(out, bytes == 0 ? 0xFFFD : code);
    }
    at += bytes == 0 ? 1 : bytes;
    begin = at;
  }
  out.append(text, begin);
}

void append_text(std::string& out, std::string_view text, Escapes escapes) {
  out += '"';
  append_characters(out, text, escapes);
  out += '"';
}

void append_number(std::string& out, double number) { append_floating(out, number); }
void append_number(std::string& out, float number) { append_floating(out, number); }
void append_number(std::string& out, std::int64_t number) { append_digits(out, number); }
void append_number(std::string& out, std::uint64_t number) { append_digits(out, number); }

}  // namespace hawser::json
