#include "cluster/route_index.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "cluster/route_match.h"

namespace hawser::cluster {
namespace {

using Header = NamingRoutes::Header;

bool splits(const Header& header) noexcept {
  return header.kind == Header::Kind::exact && !header.any_case && !header.inverted;
}

// The value of the metadata that a route demands. Null: each one may match.
const Header* demanded(const NamingRoutes::Match& match, std::string_view name) noexcept {
  const auto found =
      std::ranges::find_if(match.headers, [name](const Header& one) { return splits(one) && one.name == name; });
  return found == match.headers.end() ? nullptr : &*found;
}

}  // namespace

// Lists of routes, from which the lowest number is taken again and again.
class RouteIndex::Lists {
 public:
  void add(std::span<const std::uint32_t> numbers) noexcept {
    if (!numbers.empty()) lists_[count_++] = {numbers.data(), numbers.data() + numbers.size()};
  }
  bool empty() const noexcept { return count_ == 0; }
  std::uint32_t take() noexcept {
    std::size_t lowest = 0;
    for (std::size_t i = 1; i < count_; ++i) {
      if (*lists_[i].begin < *lists_[lowest].begin) lowest = i;
    }
    const std::uint32_t number = *lists_[lowest].begin++;
    if (lists_[lowest].begin == lists_[lowest].end) lists_[lowest] = lists_[--count_];
    return number;
  }

 private:
  struct List {
    const std::uint32_t* begin;
    const std::uint32_t* end;
  };
  // Nested routes. Of each path, and in each of two tables of a whole path and of prefixes: those with a value, others.
  static constexpr std::size_t lists_max = 1 + 2 * (1 + 2 * (1 + nested_max));

  std::array<List, lists_max> lists_;  // The first `count_` ones have routes.
  std::size_t count_ = 0;
};

RouteIndex::RouteIndex(const NamingRoutes& routes) : routes_(&routes) {
  Numbers each_path;
  std::vector<Entry> exact;
  std::vector<Entry> any_case;
  for (std::uint32_t i = 0; i < routes.routes.size(); ++i) {
    const NamingRoutes::Match& match = routes.routes[i].match;
    if (matches_each_path(match)) {
      each_path.push_back(i);
      if (!has_conditions(match)) break;  // No call passes it.
    } else {
      (match.any_case ? any_case : exact).push_back({.text = match.path, .whole = match.whole, .number = i});
    }
  }
  if (each_path == Numbers{0} && !has_conditions(routes.routes[0].match)) for_all_ = routes.routes.data();
  each_path_ = split_part(each_path);
  exact_ = places_of(exact);
  any_case_ = places_of(any_case);
  std::ranges::sort(nested_);
}

RouteIndex::Places RouteIndex::places_of(std::vector<Entry>& entries) {
  std::ranges::sort(entries, {}, [](const Entry& one) { return std::tuple(one.text, !one.whole, one.number); });
  Places places;
  std::vector<std::uint32_t> open;  // Prefixes with which the present text begins, from the shortest one on.
  for (std::span<const Entry> left = entries; !left.empty();) {
    const std::string_view text = left.front().text;
    const auto whole_end = std::ranges::find_if(left, [&](const Entry& one) { return one.text != text || !one.whole; });
    const auto end = std::find_if(whole_end, left.end(), [&](const Entry& one) { return one.text != text; });
    while (!open.empty() && !text.starts_with(places[open.back()].text)) open.pop_back();
    Place place{.text = text, .parent = open.empty() ? none : open.back(), .whole = {}, .begins = {}};
    place.whole = part_of({left.begin(), whole_end});
    if (whole_end != end) {
      if (open.size() < nested_max) {
        place.begins = part_of({whole_end, end});
        open.push_back(static_cast<std::uint32_t>(places.size()));
      } else {
        for (const Entry& one : std::span(whole_end, end)) nested_.push_back(one.number);
      }
    }
    places.push_back(place);
    left = {end, left.end()};
  }
  return places;
}

RouteIndex::Part RouteIndex::part_of(std::span<const Entry> entries) {
  Numbers numbers;
  for (const Entry& one : entries) {
    numbers.push_back(one.number);
    if (!has_conditions(routes_->routes[one.number].match)) break;  // No call of the text passes it.
  }
  return split_part(numbers);
}

// By the name for which most routes demand a value.
RouteIndex::Part RouteIndex::split_part(const Numbers& numbers) {
  if (numbers.size() < split_min) return unsplit_part(numbers);
  std::map<std::string_view, std::size_t> names;
  for (const std::uint32_t number : numbers) {
    for (const Header& one : routes_->routes[number].match.headers) names[one.name] += splits(one) ? 1 : 0;
  }
  const auto most = std::ranges::max_element(names, {}, [](const auto& entry) { return entry.second; });
  if (most == names.end() || most->second < split_min) return unsplit_part(numbers);
  Split split{.name = most->first, .values = {}};
  std::map<std::string_view, Numbers> by_value;
  Numbers others;
  for (const std::uint32_t number : numbers) {
    const Header* const header = demanded(routes_->routes[number].match, split.name);
    (header != nullptr ? by_value[header->text] : others).push_back(number);
  }
  for (const auto& [text, of] : by_value) split.values.push_back({.text = text, .part = unsplit_part(of)});
  Part part = unsplit_part(others);
  part.split = static_cast<std::uint32_t>(splits_.size());
  splits_.push_back(std::move(split));
  return part;
}

RouteIndex::Part RouteIndex::unsplit_part(std::span<const std::uint32_t> numbers) {
  const Part part{.first = static_cast<std::uint32_t>(numbers_.size()),
                  .count = static_cast<std::uint32_t>(numbers.size())};
  numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  return part;
}

void RouteIndex::add_lists(const Part& part, const Metadata& metadata, Lists& lists) const {
  lists.add({numbers_.data() + part.first, part.count});
  if (part.split == none) return;
  const Split& split = splits_[part.split];
  std::string joined;
  const std::optional<std::string_view> value = metadata_value(metadata, split.name, joined);
  if (!value) return;
  const auto found = std::ranges::lower_bound(split.values, *value, {}, &Value::text);
  if (found == split.values.end() || found->text != *value) return;
  lists.add({numbers_.data() + found->part.first, found->part.count});
}

// The texts with which a path begins are the last one that is not behind it in the order of texts, or parents of it.
void RouteIndex::add_lists(const Places& places, std::string_view path, const Metadata& metadata, Lists& lists) const {
  const auto behind = std::ranges::upper_bound(places, path, {}, &Place::text);
  if (behind == places.begin()) return;
  const Place* place = &*(behind - 1);
  if (place->text == path) add_lists(place->whole, metadata, lists);
  for (;; place = &places[place->parent]) {
    if (path.starts_with(place->text)) add_lists(place->begins, metadata, lists);
    if (place->parent == none) return;
  }
}

const NamingRoutes::Route* RouteIndex::find(std::string_view method, const Metadata& metadata, Random& random) const {
  if (for_all_ != nullptr) return for_all_;
  Lists lists;
  add_lists(each_path_, metadata, lists);
  MethodPath path;
  if (!exact_.empty() || !any_case_.empty()) {
    path.set(method);
    add_lists(exact_, path.text(), metadata, lists);
    if (!any_case_.empty()) add_lists(any_case_, path.lower_text(), metadata, lists);
    lists.add(nested_);
  }
  while (!lists.empty()) {
    const NamingRoutes::Route& route = routes_->routes[lists.take()];
    if (!nested_.empty() && !matches_each_path(route.match) && !path.matches(route.match)) continue;
    if (conditions_hold(route.match, metadata, random)) return &route;
  }
  return nullptr;
}

}  // namespace hawser::cluster
