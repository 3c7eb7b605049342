#include "protocol/http/url.h"

#include <algorithm>

#include "protocol/http/message_parser.h"

namespace hawser::protocol::http {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// A character of a host name or of an IPv6 address between brackets.
bool is_host_character(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}
bool is_ipv6_character(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.' || c == '%';
}

bool is_host(std::string_view host) noexcept {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return std::ranges::all_of(host.substr(1, host.size() - 2), is_ipv6_character);
  }
  return !host.empty() && std::ranges::all_of(host, is_host_character);
}

bool is_port(std::string_view port) noexcept {
  if (port.empty() || port.size() > 5 || !std::ranges::all_of(port, is_digit)) return false;
  unsigned number = 0;
  for (const char c : port) number = number * 10 + static_cast<unsigned>(c - '0');
  return number > 0 && number <= 65'535;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::invalid_argument, "the URL \"" + std::string(text.substr(0, 200)) + "\" " +
                                                 std::string(why) + ": give http[s]://host[:port][/path][?query]");
  };
  if (!std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; })) {
    return refuse("has a space, a control character or a character beyond ASCII");
  }
  const std::size_t colons = text.find("://");
  const std::string_view scheme = text.substr(0, colons);
  const bool secure = equal_without_case(scheme, "https");
  if (colons == std::string_view::npos || (!secure && !equal_without_case(scheme, "http"))) {
    return refuse("does not begin with http:// or https://");
  }
  std::string_view rest = text.substr(colons + 3);
  if (rest.find('#') != std::string_view::npos) return refuse("has a fragment");
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?"));
  rest.remove_prefix(authority.size());
  if (authority.find('@') != std::string_view::npos) return refuse("names a user");
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view host = authority.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? (secure ? "443" : "80") : authority.substr(colon + 1);
  if (!is_host(host)) return refuse("has no valid host");
  if (!is_port(port)) return refuse("has no valid port");
  Url url{.secure = secure,
          .address = std::string(host) + ":" + std::string(port),
          .authority = std::string(authority),
          .target = {}};
  url.target = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
  return url;
}

}  // namespace hawser::protocol::http
