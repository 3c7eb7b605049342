#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/backend.h"
#include "hawser/balancing.h"

namespace hawser::cluster {

using BackendsByAddress = std::unordered_map<std::string_view, std::shared_ptr<Backend>>;  // By their own addresses.

// Finds or makes the backends of a new list in steps, so that a long one does not block a loop. The backends of the
// list before serve meanwhile.
class ListUpdate {
 public:
  static constexpr std::size_t endpoints_of_step = 256;
  using Counts = std::map<std::uint32_t, std::size_t>;  // Endpoints of each priority.
  using Group = std::pair<std::uint32_t, bool>;         // Priority, and whether the zone is another one.

  // `endpoints`, `options` and `known`, the backends of the list before, are the same until work() has returned false.
  // `make` makes a backend.
  ListUpdate(const std::vector<Endpoint>& endpoints, const BalancingOptions& options, std::uint64_t seed,
             const BackendsByAddress& known, const std::function<std::shared_ptr<Backend>()>& make);

  // Does a bounded part of the work. True if there is more.
  bool work();

  // The backends that have been found or made until now, in the order of the list.
  std::vector<std::shared_ptr<Backend>> backends = {};
  BackendsByAddress by_address = {};
  std::map<Group, std::vector<Backend*>> groups = {};

 private:
  struct Ranked {
    std::uint64_t hash;
    std::size_t index;
    auto operator<=>(const Ranked&) const = default;
  };
  Group group_of(const Endpoint& endpoint) const;
  void choose_subset();
  void add(const Endpoint& endpoint);

  const std::vector<Endpoint>& endpoints_;
  const BalancingOptions& options_;
  const std::uint64_t seed_;
  const BackendsByAddress& known_;
  const std::function<std::shared_ptr<Backend>()>& make_;
  Counts counts_;                                // If zones are used.
  std::map<Group, std::vector<Ranked>> ranked_;  // The endpoints up to next_, if a subset is used.
  std::vector<std::size_t> subset_;              // Indices.
  bool chosen_ = false;                          // The subset is.
  std::size_t next_ = 0;
};

}  // namespace hawser::cluster
