#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/random.h"
#include "hawser/metadata.h"
#include "hawser/naming_routes.h"

// Which route and which cluster serve a call.
namespace hawser::cluster {

// The first route that matches a call of `method`, such as "shop.Cart/Add" or "shop::cart::add". Null: none does.
const NamingRoutes::Route* find_route(const NamingRoutes& routes, std::string_view method, const Metadata& metadata,
                                      Random& random);

// The index of a cluster of the route, by chance and weight.
std::size_t choose_cluster(const NamingRoutes::Route& route, Random& random) noexcept;

// The name of a cluster in a text for people.
std::string shown_cluster(std::string_view name);

// The first routes, for people: "/shop.Cart/* to blue 90 %, green 10 %; * to blue".
std::string text_of_routes(const NamingRoutes& routes);

}  // namespace hawser::cluster
