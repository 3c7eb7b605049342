#include "protocol/grpc/header_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace hawser::protocol::grpc {
namespace {

struct TimeoutUnit {
  char name;
  std::int64_t nanoseconds;
};
constexpr std::array<TimeoutUnit, 6> units = {
    {{'n', 1}, {'u', 1'000}, {'m', 1'000'000}, {'S', 1'000'000'000}, {'M', 60'000'000'000}, {'H', 3'600'000'000'000}}};
constexpr std::int64_t timeout_number_max = 99'999'999;

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::uint8_t, 256> make_base64_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(0xFF);
  for (std::size_t i = 0; i < base64_digits.size(); ++i) {
    values[static_cast<unsigned char>(base64_digits[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}
constexpr std::array<std::uint8_t, 256> base64_values = make_base64_values();

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<Duration> parse_timeout(std::string_view text) noexcept {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  std::int64_t number = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  for (const TimeoutUnit& unit : units) {
    if (unit.name != text.back()) continue;
    constexpr std::int64_t most = Duration::max().count();
    if (number > most / unit.nanoseconds) return forever;
    return std::chrono::nanoseconds(number * unit.nanoseconds);
  }
  return std::nullopt;
}

std::string format_timeout(Duration timeout) {
  const std::int64_t nanoseconds = timeout.count();
  if (nanoseconds <= 0) return "0n";
  for (const TimeoutUnit& unit : units) {
    const std::int64_t number = nanoseconds / unit.nanoseconds + (nanoseconds % unit.nanoseconds != 0 ? 1 : 0);
    if (number <= timeout_number_max) return std::to_string(number) + unit.name;
  }
  return std::to_string(timeout_number_max) + 'H';
}

std::string percent_encode(std::string_view text, std::size_t encoded_bytes_max) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  std::string out;
  out.reserve(std::min(text.size(), encoded_bytes_max));
  std::size_t whole = 0;  // The bytes of `out` that encode whole characters.
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) != 0x80) whole = out.size();
    if (byte >= 0x20 && byte <= 0x7E && c != '%') {
      out += c;
    } else {
      out += '%';
      out += hex[byte >> 4];
      out += hex[byte & 15];
    }
    if (out.size() > encoded_bytes_max) {
      out.resize(whole);
      break;
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = hex_value(text[i + 1]);
      const int low = hex_value(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : bytes) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    count += 8;
    while (count >= 6) {
      count -= 6;
      out += base64_digits[(bits >> count) & 63];
    }
  }
  if (count != 0) out += base64_digits[(bits << (6 - count)) & 63];
  return out;
}

bool base64_decode(std::string_view text, std::string& bytes) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return false;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const std::uint8_t value = base64_values[static_cast<unsigned char>(c)];
    if (value == 0xFF) return false;
    bits = (bits << 6) | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>((bits >> count) & 0xFF);
    }
  }
  return true;
}

bool is_metadata_name(std::string_view name) noexcept {
  if (name.empty()) return false;
  for (const char c : name) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.')) return false;
  }
  return true;
}

bool is_reserved_name(std::string_view name) noexcept {
  if (name.starts_with("grpc-")) {
    return name != status_details_name && name != retry_pushback_name && name != previous_attempts_name;
  }
  for (const std::string_view reserved : {"te", "content-type", "content-length", "user-agent", "host", "connection",
                                          "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}) {
    if (name == reserved) return true;
  }
  return false;
}

Duration parse_pushback(std::string_view text) noexcept {
  constexpr Duration forbidden = std::chrono::milliseconds(-1);
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return forbidden;
  return std::chrono::milliseconds(number);
}

bool is_plain_value(std::string_view value) noexcept {
  for (const char c : value) {
    if (c < 0x20 || c > 0x7E) return false;
  }
  return true;
}

}  // namespace hawser::protocol::grpc
