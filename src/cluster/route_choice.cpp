#include "cluster/route_choice.h"

#include <algorithm>
#include <cstdint>

#include "base/escaped_text.h"
#include "cluster/route_match.h"

namespace hawser::cluster {
namespace {

using Route = NamingRoutes::Route;

constexpr std::size_t shown_routes_max = 10;
constexpr std::size_t shown_targets_max = 10;
constexpr std::size_t shown_part_bytes_max = 64;  // Limit of a path, or of the name of a cluster.

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
  if (route.match.parts_per_million < all_calls_per_million) {
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
