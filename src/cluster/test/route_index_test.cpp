#include "cluster/route_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cluster/route_match.h"

// The index against a search through all routes.
namespace hawser::cluster {
namespace {

// The route that the definition of NamingRoutes chooses: the first one that matches.
const NamingRoutes::Route* searched(const NamingRoutes& routes, std::string_view method, const Metadata& metadata,
                                    Random& random) {
  MethodPath path;
  path.set(method);
  for (const NamingRoutes::Route& route : routes.routes) {
    if (!matches_each_path(route.match) && !path.matches(route.match)) continue;
    if (conditions_hold(route.match, metadata, random)) return &route;
  }
  return nullptr;
}

// Texts of few letters, so that they often are equal, or begin with each other.
class RandomTables {
 public:
  explicit RandomTables(std::uint64_t seed) : random_(seed) {}

  std::string text(std::size_t bytes_max) {
    constexpr std::string_view letters = "abA/";
    std::string made;
    for (std::size_t bytes = random_.below(bytes_max + 1); made.size() < bytes;) {
      made += letters[random_.below(letters.size())];
    }
    return made;
  }
  NamingRoutes routes(std::size_t count, std::size_t bytes_max) {
    NamingRoutes made{.clusters = {"c"}};
    for (std::size_t i = 0; i < count; ++i) made.routes.push_back({.match = match(bytes_max), .targets = {{}}});
    return made;
  }
  Metadata metadata() {
    Metadata made;
    while (random_.chance(0.4)) made.emplace_back(random_.chance(0.5) ? "k" : "l", random_.chance(0.5) ? "x" : "y");
    return made;
  }
  std::size_t below(std::size_t bound) { return random_.below(bound); }

 private:
  NamingRoutes::Match match(std::size_t bytes_max) {
    NamingRoutes::Match made{.path = text(bytes_max), .whole = random_.chance(0.5), .any_case = random_.chance(0.2)};
    if (!random_.chance(0.1)) made.path = "/" + made.path;
    if (made.any_case) std::ranges::replace(made.path, 'A', 'a');
    if (random_.chance(0.5))
      made.headers.push_back({.name = "k", .kind = NamingRoutes::Header::Kind::exact, .text = "x"});
    if (random_.chance(0.2)) made.headers.push_back({.name = "l"});
    if (random_.chance(0.2)) made.parts_per_million = 400'000;
    return made;
  }

  Random random_;
};

TEST(RouteIndex, FindsTheRouteThatASearchThroughAllFinds) {
  std::size_t found = 0;
  std::size_t missed = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    RandomTables tables(seed);
    const std::size_t bytes_max = 1 + tables.below(20);  // Long ones have more than eight prefixes.
    const NamingRoutes routes = tables.routes(tables.below(80), bytes_max);
    const RouteIndex index(routes);
    for (int call = 0; call < 50; ++call) {
      const std::string method = tables.text(bytes_max + 2);
      const Metadata metadata = tables.metadata();
      Random one(seed);
      Random other(seed);
      const NamingRoutes::Route* const expected = searched(routes, method, metadata, one);
      ASSERT_EQ(index.find(method, metadata, other), expected) << "seed " << seed << ", method " << method;
      ASSERT_EQ(one.next(), other.next()) << "the same chances were taken; seed " << seed;
      ++(expected != nullptr ? found : missed);
    }
  }
  EXPECT_GT(found, 5000U);
  EXPECT_GT(missed, 1000U);
}

// Each text begins with all texts before it.
TEST(RouteIndex, PrefixesOfPrefixesAreFoundInTheOrderOfTheRoutes) {
  NamingRoutes routes{.clusters = {"c"}};
  for (std::size_t bytes = 1; bytes <= 40; ++bytes) {
    routes.routes.push_back(
        {.match = {.path = "/" + std::string(bytes, 'a'), .headers = {{.name = "k" + std::to_string(bytes)}}},
         .targets = {{}}});
  }
  const RouteIndex index(routes);
  Random random(1);
  for (std::size_t bytes = 1; bytes <= 40; ++bytes) {
    const Metadata metadata = {{"k" + std::to_string(bytes), ""}, {"k40", ""}};
    EXPECT_EQ(index.find(std::string(40, 'a'), metadata, random), &routes.routes[bytes - 1]);
    EXPECT_EQ(index.find(std::string(bytes - 1, 'a'), metadata, random), nullptr);
  }
}

// Routes of one path that demand different values of metadata, among others.
TEST(RouteIndex, ValuesOfMetadataAreFoundInTheOrderOfTheRoutes) {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random chances(seed);
    const auto value = [&chances] { return std::string(1, static_cast<char>('a' + chances.below(6))); };
    NamingRoutes routes{.clusters = {"c"}};
    while (routes.routes.size() < 60) {
      NamingRoutes::Match match{.path = chances.chance(0.5) ? "" : "/a"};
      for (const char* const name : {"k", "l", "x-bin"}) {
        if (chances.chance(0.4)) continue;
        match.headers.push_back({.name = name, .kind = NamingRoutes::Header::Kind::exact, .text = value()});
        match.headers.back().inverted = chances.chance(0.1);
        match.headers.back().any_case = chances.chance(0.1);
      }
      if (match.headers.empty()) match.parts_per_million = 10'000;
      routes.routes.push_back({.match = std::move(match), .targets = {{}}});
    }
    const RouteIndex index(routes);
    for (int call = 0; call < 50; ++call) {
      Metadata metadata = {{"x-bin", value()}};
      if (chances.chance(0.9)) metadata.emplace_back("k", value());
      if (chances.chance(0.9)) metadata.emplace_back("l", value());
      Random one(seed);
      Random other(seed);
      const NamingRoutes::Route* const expected = searched(routes, "a/b", metadata, one);
      ASSERT_EQ(index.find("a/b", metadata, other), expected) << "seed " << seed;
      ASSERT_EQ(one.next(), other.next()) << "the same chances were taken; seed " << seed;
      found += expected != nullptr ? 1 : 0;
    }
  }
  EXPECT_GT(found, 5000U);
}

TEST(RouteIndex, ALongPathIsComparedAsAWhole) {
  const std::string service(500, 's');
  NamingRoutes routes{.clusters = {"c"}};
  routes.routes.push_back({.match = {.path = "/" + service + "/get", .whole = true}, .targets = {{}}});
  routes.routes.push_back({.match = {.path = "/" + service + "/"}, .targets = {{}}});
  const RouteIndex index(routes);
  Random random(1);
  EXPECT_EQ(index.find(service + "::get", {}, random), &routes.routes[0]);
  EXPECT_EQ(index.find(service + "/get", {}, random), &routes.routes[0]);
  EXPECT_EQ(index.find(service + "::put", {}, random), &routes.routes[1]);
  EXPECT_EQ(index.find(service, {}, random), nullptr);
}

}  // namespace
}  // namespace hawser::cluster
