#include "cluster/endpoint_text.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t shown_bytes_max = 80;  // Limit of a text that an error repeats.
constexpr std::string_view unix_prefix = "unix:";

std::string shown(std::string_view text) {
  std::string line = "'";
  append_escaped(line, text, shown_bytes_max);
  return line + "'";
}

bool printable(std::string_view text) {
  return std::ranges::none_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size();
}

std::string why_invalid_address(std::string_view address) {
  if (address.empty()) return "an endpoint has no address: write host:port";
  if (address.size() > EndpointLimits::address_bytes_max) {
    return "address " + shown(address) + " has " + std::to_string(address.size()) + " bytes, more than " +
           std::to_string(EndpointLimits::address_bytes_max);
  }
  const bool plain = std::ranges::all_of(address, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f;
  });
  if (!plain) return "address " + shown(address) + " has a blank or a byte that is not printable ASCII";
  if (address.starts_with(unix_prefix)) {
    return address.size() > unix_prefix.size() ? "" : "address 'unix:' has no path: write unix:/path";
  }
  const std::size_t colon = address.rfind(':');
  const std::string_view host = address.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  std::uint16_t port = 0;
  if (colon == std::string_view::npos || host.empty() || (!bracketed && host.contains(':')) ||
      !parse_number(address.substr(colon + 1), port) || port == 0) {
    return "address " + shown(address) + " is not host:port with a port from 1 to 65535, [ipv6]:port or unix:/path";
  }
  return {};
}

Result<void> set_attribute(Endpoint& endpoint, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return fail(ErrorCode::invalid_argument,
                "attribute " + shown(text) + " of endpoint " + shown(endpoint.address) + " is not key=value");
  }
  const std::string_view key = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  if (key == "zone") {
    endpoint.zone = value;
  } else if (key == "weight" || key == "priority") {
    if (!parse_number(value, key == "weight" ? endpoint.weight : endpoint.priority)) {
      return fail(ErrorCode::invalid_argument, std::string(key) + " " + shown(value) + " of endpoint " +
                                                   shown(endpoint.address) + " is not a whole number");
    }
  } else if (endpoint.tags.size() == EndpointLimits::tags_max) {
    return fail(ErrorCode::invalid_argument, "endpoint " + shown(endpoint.address) + " has more than " +
                                                 std::to_string(EndpointLimits::tags_max) + " tags");
  } else {
    endpoint.tags.emplace_back(key, value);
  }
  return {};
}

// Removes the part before the next `separator` from `rest`, with the separator, and returns it.
std::string_view take_part(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

Result<void> check_room(const std::vector<Endpoint>& endpoints) {
  if (endpoints.size() < EndpointLimits::endpoints_max) return {};
  return fail(ErrorCode::limit_exceeded,
              "the list has more than " + std::to_string(EndpointLimits::endpoints_max) + " endpoints");
}

}  // namespace

std::string why_invalid(const Endpoint& endpoint) {
  if (std::string why = why_invalid_address(endpoint.address); !why.empty()) return why;
  const auto of_endpoint = [&](const std::string& what) { return what + " of endpoint " + shown(endpoint.address); };
  if (endpoint.weight == 0 || endpoint.weight > EndpointLimits::weight_max) {
    return of_endpoint("weight " + std::to_string(endpoint.weight)) + " is not from 1 to " +
           std::to_string(EndpointLimits::weight_max);
  }
  if (endpoint.priority > EndpointLimits::priority_max) {
    return of_endpoint("priority " + std::to_string(endpoint.priority)) + " is above " +
           std::to_string(EndpointLimits::priority_max);
  }
  if (endpoint.zone.size() > EndpointLimits::zone_bytes_max || !printable(endpoint.zone)) {
    return of_endpoint("zone " + shown(endpoint.zone)) + " has more than " +
           std::to_string(EndpointLimits::zone_bytes_max) + " bytes or a control character";
  }
  if (endpoint.tags.size() > EndpointLimits::tags_max) {
    return "endpoint " + shown(endpoint.address) + " has " + std::to_string(endpoint.tags.size()) +
           " tags, more than " + std::to_string(EndpointLimits::tags_max);
  }
  for (const auto& [key, value] : endpoint.tags) {
    const bool fits = std::max(key.size(), value.size()) <= EndpointLimits::tag_bytes_max;
    if (key.empty() || !fits || !printable(key) || !printable(value)) {
      return of_endpoint("tag " + shown(key)) + " is empty, has more than " +
             std::to_string(EndpointLimits::tag_bytes_max) + " bytes or a control character";
    }
  }
  return {};
}

Result<Endpoint> parse_endpoint(std::string_view text, char separator) {
  Endpoint endpoint;
  endpoint.address = take_part(text, separator);
  while (!text.empty()) {
    const std::string_view attribute = take_part(text, separator);
    if (!attribute.empty()) TRY(set_attribute(endpoint, attribute));
  }
  if (std::string why = why_invalid(endpoint); !why.empty()) return fail(ErrorCode::invalid_argument, std::move(why));
  return endpoint;
}

Result<std::vector<Endpoint>> parse_endpoint_list(std::string_view text) {
  std::vector<Endpoint> endpoints;
  while (!text.empty()) {
    TRY(check_room(endpoints));
    TRY(Endpoint endpoint, parse_endpoint(take_part(text, ','), ';'));
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

Result<std::vector<Endpoint>> parse_endpoint_lines(std::string_view text) {
  std::vector<Endpoint> endpoints;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string line(take_part(text, '\n'));
    std::ranges::replace(line, '\t', ' ');
    if (line.ends_with('\r')) line.pop_back();
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    TRY(check_room(endpoints));
    Result<Endpoint> endpoint = parse_endpoint(std::string_view(line).substr(begin), ' ');
    if (!endpoint) {
      return fail(endpoint.error().code, "line " + std::to_string(number) + ": " + endpoint.error().text);
    }
    endpoints.push_back(std::move(*endpoint));
  }
  return endpoints;
}

}  // namespace hawser::cluster
