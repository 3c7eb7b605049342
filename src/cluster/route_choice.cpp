#include "cluster/route_choice.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/escaped_text.h"

namespace hawser::cluster {
namespace {

using Header = NamingRoutes::Header;
using Route = NamingRoutes::Route;

constexpr std::uint32_t million = 1'000'000;
constexpr std::size_t shown_routes_max = 10;
constexpr std::size_t shown_targets_max = 10;
constexpr std::size_t shown_part_bytes_max = 64;  // Limit of a path, or of the name of a cluster.

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return lower;
}

// The path of a method on the wire of gRPC: a function "shop::cart::add" has the service "shop::cart".
std::string path_of(std::string_view method) {
  if (method.contains('/')) return "/" + std::string(method);
  const std::size_t colons = method.rfind("::");
  if (colons == std::string_view::npos) return "/" + std::string(method);
  return "/" + std::string(method.substr(0, colons)) + "/" + std::string(method.substr(colons + 2));
}

// As gRPC: binary metadata matches nothing, and the type of the content is known.
std::optional<std::string> value_of(const Metadata& metadata, std::string_view name) {
  if (name.ends_with("-bin")) return std::nullopt;
  if (name == "content-type") return "application/grpc";
  std::optional<std::string> value;
  for (const auto& [entry, one] : metadata) {
    if (entry == name) value = value ? *value + "," + one : one;
  }
  return value;
}

bool in_range(const Header& header, std::string_view value) {
  if (value.starts_with('+')) {
    value.remove_prefix(1);
    if (value.starts_with('-')) return false;
  }
  std::int64_t number = 0;
  const auto [stop, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool read = problem == std::errc() && stop == value.data() + value.size();
  return read && number >= header.first && number < header.end;
}

bool holds(const Header& header, const std::string& value) {
  switch (header.kind) {
    case Header::Kind::exact: return value == header.text;
    case Header::Kind::prefix: return value.starts_with(header.text);
    case Header::Kind::suffix: return value.ends_with(header.text);
    case Header::Kind::contains: return value.contains(header.text);
    case Header::Kind::range: return in_range(header, value);
    case Header::Kind::present: return true;
    case Header::Kind::absent: break;
  }
  return false;
}

bool matches_header(const Header& header, const Metadata& metadata) {
  std::optional<std::string> value = value_of(metadata, header.name);
  if (!value) return header.kind == Header::Kind::absent;
  if (header.any_case) value = in_lower_case(*value);
  return holds(header, *value) != header.inverted;
}

bool any_path(const NamingRoutes::Match& match) noexcept {
  return !match.whole && (match.path.empty() || match.path == "/");
}

bool matches_path(const NamingRoutes::Match& match, const std::string& path) {
  const std::string lower = match.any_case ? in_lower_case(path) : std::string();
  const std::string_view given = match.any_case ? lower : path;
  return match.whole ? given == match.path : given.starts_with(match.path);
}

std::uint64_t weight_of(const Route& route) noexcept {
  std::uint64_t sum = 0;
  for (const NamingRoutes::Target& one : route.targets) sum += one.weight;
  return sum;
}

std::string text_of(const NamingRoutes& routes, const Route& route) {
  std::string text;
  append_escaped(text, route.match.path, shown_part_bytes_max);
  if (!route.match.whole) text += '*';
  if (!route.match.headers.empty()) text += " with " + std::to_string(route.match.headers.size()) + " headers";
  if (route.match.parts_per_million != million) {
    text += ", " + std::to_string(route.match.parts_per_million) + " of a million calls,";
  }
  text += " to ";
  for (std::size_t i = 0; i < std::min(route.targets.size(), shown_targets_max); ++i) {
    const NamingRoutes::Target& target = route.targets[i];
    if (i != 0) text += ", ";
    text += shown_cluster(routes.clusters[target.cluster]);
    if (route.targets.size() == 1) break;
    text += " " + std::to_string((target.weight * std::uint64_t{100} + weight_of(route) / 2) / weight_of(route)) + " %";
  }
  if (route.targets.size() > shown_targets_max) text += " and others";
  return text;
}

}  // namespace

const Route* find_route(const NamingRoutes& routes, std::string_view method, const Metadata& metadata, Random& random) {
  std::string path;  // Made when a route needs it.
  for (const Route& route : routes.routes) {
    const NamingRoutes::Match& match = route.match;
    if (!any_path(match)) {
      if (path.empty()) path = path_of(method);
      if (!matches_path(match, path)) continue;
    }
    const auto matches = [&metadata](const Header& header) { return matches_header(header, metadata); };
    if (!std::ranges::all_of(match.headers, matches)) continue;
    if (match.parts_per_million < million && random.below(million) >= match.parts_per_million) continue;
    return &route;
  }
  return nullptr;
}

std::size_t choose_cluster(const Route& route, Random& random) noexcept {
  if (route.targets.size() == 1) return route.targets.front().cluster;
  std::uint64_t at = random.below(weight_of(route));
  for (const NamingRoutes::Target& one : route.targets) {
    if (at < one.weight) return one.cluster;
    at -= one.weight;
  }
  return route.targets.back().cluster;
}

std::string shown_cluster(std::string_view name) {
  std::string shown;
  append_escaped(shown, name, shown_part_bytes_max);
  return shown;
}

std::string text_of_routes(const NamingRoutes& routes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(routes.routes.size(), shown_routes_max); ++i) {
    text += (i == 0 ? "" : "; ") + text_of(routes, routes.routes[i]);
  }
  if (routes.routes.size() > shown_routes_max) {
    text += "; and " + std::to_string(routes.routes.size() - shown_routes_max) + " more";
  }
  return text;
}

}  // namespace hawser::cluster
