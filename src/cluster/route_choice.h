#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/random.h"
#include "hawser/naming_routes.h"

// Which cluster of a route serves a call.
namespace hawser::cluster {

// The index of a cluster of the route, by chance and weight.
std::size_t choose_cluster(const NamingRoutes::Route& route, Random& random) noexcept;

// The name of a cluster in a text for people.
std::string shown_cluster(std::string_view name);

// The first routes, for people: "/shop.Cart/* to blue 90 %, green 10 %; * to blue".
std::string text_of_routes(const NamingRoutes& routes);

}  // namespace hawser::cluster
