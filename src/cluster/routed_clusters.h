#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/cluster_state.h"
#include "hawser/naming_routes.h"
#include "hawser/timer.h"

namespace hawser::detail {

// The clusters of a name beside its main one. Each has the state of a client: a list, a balancing, connections. One
// that no route leads to any longer stays while calls and streams use it, so that routes which come and go open no
// connections again. Loop's thread only.
class RoutedClusters {
 public:
  using State = ClusterAttempt::State;

  // `main` owns this object.
  explicit RoutedClusters(State& main) noexcept : main_(main) {}
  RoutedClusters(const RoutedClusters&) = delete;
  RoutedClusters& operator=(const RoutedClusters&) = delete;

  // If there is no memory, nothing changes.
  void update(const NamingRoutes& routes);
  // Null: the main cluster.
  const std::shared_ptr<State>& at(std::size_t cluster) const noexcept { return by_index_[cluster]; }
  const std::vector<std::shared_ptr<State>>& all() const noexcept { return by_index_; }

  // All calls and streams end with `why`.
  void end(const char* why);
  // The lists get no further changes.
  void forget_names() noexcept;

 private:
  // No route leads to it.
  struct Left {
    std::shared_ptr<State> state;
    Time since;
  };
  std::shared_ptr<State> open(const NamingRoutes& routes, const std::string& cluster);
  void end_unused();

  State& main_;
  std::vector<std::shared_ptr<State>> by_index_;        // As NamingRoutes::clusters.
  std::map<std::string, std::shared_ptr<State>> used_;  // The same ones by name, without the main one.
  std::map<std::string, Left> left_;
  MemberTimer<&RoutedClusters::end_unused> closer_{*this};
};

}  // namespace hawser::detail
