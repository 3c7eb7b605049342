#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "hawser/metadata.h"
#include "hawser/naming_routes.h"

namespace hawser::cluster {

// Finds the first route that matches a call. The order of the routes counts, as if they were compared one after
// another, but only routes that may match are looked at: binary searches find them by the path of the call, and by a
// value of its metadata if many routes with one path demand different ones.
class RouteIndex {
 public:
  // `routes` does not change, and outlives this object.
  explicit RouteIndex(const NamingRoutes& routes);

  // The first route that matches a call of `method`, such as "shop.Cart/Add" or "shop::cart::add". Null: none does.
  const NamingRoutes::Route* find(std::string_view method, const Metadata& metadata, Random& random) const;

 private:
  // Prefixes that begin with this number of other prefixes are compared one after another, so that a call has a bounded
  // number of lists.
  static constexpr std::size_t nested_max = 8;
  // Fewer routes than these are compared one after another.
  static constexpr std::size_t split_min = 8;
  static constexpr std::uint32_t none = UINT32_MAX;

  using Numbers = std::vector<std::uint32_t>;  // Numbers of routes, in their order.
  // Routes with one text.
  struct Part {
    std::uint32_t first = 0;  // In numbers_.
    std::uint32_t count = 0;
    std::uint32_t split = none;  // In splits_: further routes, by a value of metadata.
  };
  struct Value {
    std::string_view text;
    Part part;
  };
  struct Split {
    std::string_view name;      // The name of the metadata.
    std::vector<Value> values;  // By text.
  };
  struct Place {
    std::string_view text;
    std::uint32_t parent = none;  // The longest other text with which this one begins and that has `begins`.
    Part whole;                   // Routes whose path is the text.
    Part begins;                  // Routes whose path begins with the text.
  };
  // The routes whose paths are compared in one way, by text.
  using Places = std::vector<Place>;
  struct Entry {
    std::string_view text;
    bool whole;
    std::uint32_t number;
  };
  class Lists;
  Places places_of(std::vector<Entry>& entries);
  Part part_of(std::span<const Entry> entries);
  Part split_part(const Numbers& numbers);
  Part unsplit_part(std::span<const std::uint32_t> numbers);
  void add_lists(const Part& part, const Metadata& metadata, Lists& lists) const;
  void add_lists(const Places& places, std::string_view path, const Metadata& metadata, Lists& lists) const;

  const NamingRoutes* routes_;
  const NamingRoutes::Route* for_all_ = nullptr;  // The first route, if all calls match it.
  Numbers numbers_;
  std::vector<Split> splits_;
  Part each_path_;
  Places exact_;
  Places any_case_;
  Numbers nested_;  // Routes beyond nested_max.
};

}  // namespace hawser::cluster
