#include "protocol/http2/request_rules.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace hawser::protocol::http2 {
namespace {

enum Seen : std::uint8_t { method = 1, scheme = 2, path = 4, authority = 8, host = 16, connects = 32 };

bool is_space(char c) noexcept { return c == ' ' || c == '\t'; }

// The characters of tokens but capitals (section 8.2.1).
constexpr std::array<bool, 256> make_name_characters() {
  std::array<bool, 256> good{};
  for (unsigned c = 'a'; c <= 'z'; ++c) good[c] = true;
  for (unsigned c = '0'; c <= '9'; ++c) good[c] = true;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) good[static_cast<unsigned char>(c)] = true;
  return good;
}
constexpr std::array<bool, 256> name_characters = make_name_characters();

bool is_name(std::string_view name) noexcept {
  return !name.empty() &&
         std::ranges::all_of(name, [](char c) { return name_characters[static_cast<unsigned char>(c)]; });
}

bool has_control(std::string_view value) noexcept {
  return std::ranges::any_of(value,
                             [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; });
}

bool is_scheme(std::string_view text) noexcept {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && letter(text.front()) && std::ranges::all_of(text, [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

}  // namespace

std::string_view RequestRules::without_spaces(std::string_view value) noexcept {
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  return value;
}

bool RequestRules::add(std::string_view name, std::string_view value, bool trailers) noexcept {
  if (malformed_) return false;
  if (name.starts_with(':')) {
    if (trailers || regular_ || has_control(value) || !add_pseudo(name, value)) malformed_ = true;
    return !malformed_;
  }
  regular_ = true;
  malformed_ = !is_name(name) || has_control(value) || !add_regular(name, value);
  return !malformed_;
}

bool RequestRules::add_pseudo(std::string_view name, std::string_view value) noexcept {
  const std::uint8_t field = name == ":method"      ? method
                             : name == ":scheme"    ? scheme
                             : name == ":path"      ? path
                             : name == ":authority" ? authority
                                                    : 0;
  if (field == 0 || (seen_ & field) != 0) return false;
  seen_ |= field;
  if (field == method && value == "CONNECT") seen_ |= connects;
  if (field == scheme) return is_scheme(value);
  return field == authority || !std::ranges::all_of(value, is_space);
}

bool RequestRules::add_regular(std::string_view name, std::string_view value) noexcept {
  if (name == "content-length") {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (content_length_ || value.empty() || error != std::errc() || end != value.data() + value.size()) return false;
    content_length_ = number;
    return true;
  }
  if (name == "host") {
    if ((seen_ & host) != 0) return false;
    seen_ |= host;
    return true;
  }
  if (name == "te") {
    constexpr std::string_view only = "trailers";
    return std::ranges::equal(value, only, [](char a, char b) { return (a | 0x20) == b; });
  }
  return name != "connection" && name != "keep-alive" && name != "proxy-connection" && name != "transfer-encoding" &&
         name != "upgrade";
}

void RequestRules::end_head() noexcept {
  constexpr std::uint8_t needed = method | scheme | path;
  if ((seen_ & connects) != 0) {
    // Section 8.5.
    malformed_ = malformed_ || (seen_ & (scheme | path)) != 0 || (seen_ & authority) == 0;
    content_length_.reset();
  } else {
    malformed_ = malformed_ || (seen_ & needed) != needed;
  }
}

void RequestRules::add_body(std::size_t bytes) noexcept {
  body_bytes_ += bytes;
  if (content_length_ && body_bytes_ > *content_length_) malformed_ = true;
}

void RequestRules::end() noexcept {
  if (content_length_ && body_bytes_ != *content_length_) malformed_ = true;
}

}  // namespace hawser::protocol::http2
