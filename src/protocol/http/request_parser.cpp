#include "protocol/http/request_parser.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace hawser::protocol::http {

bool is_target(std::string_view target) noexcept {
  const auto allowed = [](char c) { return static_cast<unsigned char>(c) > 0x20 && c != 0x7f; };
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  return !target.empty() && std::ranges::all_of(target, allowed) &&
         (std::ranges::all_of(target, ascii) || is_utf8(target));
}

bool is_host_field(std::string_view value) noexcept {
  constexpr std::string_view others = ",/\\#?\"<>^`{|}";
  return std::ranges::all_of(value, [&](char c) { return c > 0x20 && c < 0x7f && !others.contains(c); });
}

bool RequestParser::parse_first_line(std::string_view line) {
  authority_ = {};
  host_ = head_.expects_continue = false;
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return refuse(400, "the request line has no three parts");
  head_.method = line.substr(0, first);
  head_.target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!is_token(head_.method)) return refuse(400, "the method is not a token");
  if (!parse_version(version)) return false;
  return parse_target() || refuse(400, "invalid request target");
}

bool RequestParser::parse_target() {
  std::string_view target = head_.target;
  if (!is_target(target)) return false;
  if (head_.method == "CONNECT") {
    head_.path = target;
    head_.query = {};
    return true;
  }
  if (target == "*") {
    head_.path = target;
    head_.query = {};
    return head_.method == "OPTIONS";
  }
  if (target.front() != '/') {
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos) return false;
    const std::string_view name = target.substr(0, scheme);
    if (!equal_without_case(name, "http") && !equal_without_case(name, "https")) return false;
    target.remove_prefix(scheme + 3);
    const std::size_t end = target.find_first_of("/?");
    if (end == 0 || target.empty()) return false;
    authority_ = target.substr(0, end);
    // A name and a password (RFC 9110, 4.2.4), or what the field Host must not be.
    if (authority_.contains('@') || !is_host_field(authority_)) return false;
    target = end == std::string_view::npos ? std::string_view("/") : target.substr(end);
  }
  if (target.find('#') != std::string_view::npos) return false;
  const std::size_t query = target.find('?');
  head_.path = query == 0 ? std::string_view("/") : target.substr(0, query);
  head_.query = query == std::string_view::npos ? std::string_view() : target.substr(query + 1);
  return true;
}

bool RequestParser::apply_field(const Field& field) {
  if (equal_without_case(field.name, "host")) {
    if (std::exchange(host_, true)) return refuse(400, "Host is sent twice");
    return is_host_field(field.value) || refuse(400, "invalid Host");
  }
  if (equal_without_case(field.name, "expect")) {
    if (!equal_without_case(field.value, "100-continue")) return refuse(417, "unknown expectation");
    head_.expects_continue = head_.minor == 1;
  }
  return true;
}

MessageParser::State RequestParser::begin_body() {
  if (!host_ && head_.minor == 1) refuse(400, "Host is missing");
  // A proxy that goes by the target and a handler that goes by Host must see the same server (RFC 9112, 3.2.2).
  if (!authority_.empty()) {
    for (Field& field : head_.fields) {
      if (equal_without_case(field.name, "host")) field.value = authority_;
    }
    if (!host_) head_.fields.push_back({"host", authority_});
  }
  if (!head_.has_body()) head_.expects_continue = false;
  return head_.chunked ? State::chunk_size : State::body;
}

}  // namespace hawser::protocol::http
