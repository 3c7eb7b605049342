#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// The only writer of JSON values in the library. Its texts are UTF-8, whatever they were.
namespace hawser::json {

enum class Escapes : std::uint8_t {
  // RFC 8259 demands some. The others command a terminal or end a line: U+007F to U+009F, U+2028 and U+2029.
  text,
  // Also < > and &, so that the text is harmless within HTML.
  html,
};

// Appends the text in quotation marks. Bytes that are not UTF-8 become U+FFFD.
void append_text(std::string& out, std::string_view text, Escapes escapes = Escapes::text);
// The same without quotation marks, for parts of a text. Characters must not be cut between parts.
void append_characters(std::string& out, std::string_view text, Escapes escapes = Escapes::text);

// Appends as few digits as identify the number. Infinity and NaN become null.
void append_number(std::string& out, double number);
void append_number(std::string& out, float number);
void append_number(std::string& out, std::int64_t number);
void append_number(std::string& out, std::uint64_t number);

}  // namespace hawser::json
