#include "protocol/http/field_values.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "protocol/http/request_parser.h"

namespace hawser::protocol::http {

std::string_view media_type(std::string_view value) noexcept {
  value = value.substr(0, value.find(';'));
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  return value;
}

bool is_any_of(std::string_view text, std::initializer_list<std::string_view> names) noexcept {
  return std::ranges::any_of(names, [&](std::string_view name) { return equal_without_case(text, name); });
}

bool is_metadata(std::string_view name) noexcept {
  return (name.size() > 2 && (name[0] == 'x' || name[0] == 'X') && name[1] == '-') ||
         is_any_of(name, {"authorization", "traceparent", "tracestate", "log-id"});
}

std::string_view separator_of(std::string_view name) noexcept {
  // A second value of these is an error of the client or another value of a proxy: no parser could divide the join.
  constexpr std::string_view singletons[] = {"age",
                                             "authorization",
                                             "content-length",
                                             "content-location",
                                             "content-range",
                                             "content-type",
                                             "date",
                                             "etag",
                                             "expires",
                                             "from",
                                             "host",
                                             "if-modified-since",
                                             "if-range",
                                             "if-unmodified-since",
                                             "last-modified",
                                             "location",
                                             "max-forwards",
                                             "origin",
                                             "proxy-authorization",
                                             "range",
                                             "referer",
                                             "retry-after",
                                             "server",
                                             "user-agent",
                                             "traceparent",
                                             "log-id",
                                             "timeout-ms",
                                             "grpc-timeout"};
  if (equal_without_case(name, "cookie")) return "; ";
  const bool single =
      std::ranges::any_of(singletons, [&](std::string_view one) { return equal_without_case(one, name); });
  return single ? std::string_view() : ", ";
}

std::optional<Duration> timeout_of(std::string_view value, bool with_unit) noexcept {
  constexpr std::size_t digits_max = 9;
  std::int64_t number = 0;
  std::size_t digits = 0;
  for (; digits < value.size() && value[digits] >= '0' && value[digits] <= '9'; ++digits) {
    if (digits == digits_max) return std::nullopt;
    number = number * 10 + (value[digits] - '0');
  }
  if (digits == 0) return std::nullopt;
  const std::string_view unit = value.substr(digits);
  if (!with_unit) return unit.empty() ? std::optional<Duration>(std::chrono::milliseconds(number)) : std::nullopt;
  if (unit == "H") return std::chrono::hours(std::min<std::int64_t>(number, 1'000'000));
  if (unit == "M") return std::chrono::minutes(std::min<std::int64_t>(number, 60'000'000));
  if (unit == "S") return std::chrono::seconds(number);
  if (unit == "m") return std::chrono::milliseconds(number);
  if (unit == "u") return std::chrono::microseconds(number);
  if (unit == "n") return std::chrono::nanoseconds(number);
  return std::nullopt;
}

}  // namespace hawser::protocol::http
