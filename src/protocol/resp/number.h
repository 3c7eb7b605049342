#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace hawser::protocol::resp {

// Parses a decimal number of 64 bits as Redis does: no spaces, no plus sign, no leading zeros, no "-0". False if `text`
// is something else.
inline bool parse_number(std::string_view text, std::int64_t& number) noexcept {
  if (text.size() == 1 && text.front() >= '0' && text.front() <= '9') {
    number = text.front() - '0';
    return true;
  }
  if (text.empty()) return false;
  const std::string_view digits = text.substr(text.front() == '-' ? 1 : 0);
  if (digits.empty() || digits.front() < '1' || digits.front() > '9') return false;
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace hawser::protocol::resp
