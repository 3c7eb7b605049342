#include "cluster/routed_clusters.h"

#include <utility>

#include "cluster/route_choice.h"

namespace hawser::detail {
namespace {

// Period in which the clusters that no route leads to are examined, and the shortest time that they stay.
constexpr Duration unused_interval = std::chrono::seconds(1);

}  // namespace

std::shared_ptr<ClusterAttempt::State> RoutedClusters::open(const NamingRoutes& routes, const std::string& cluster) {
  std::string name = main_.name + " cluster " + cluster::shown_cluster(cluster);
  const auto source = [open = routes.open, cluster](std::string_view) -> Result<std::unique_ptr<NamingSource>> {
    return open(cluster);
  };
  ClusterOptions options = main_.options;
  options.seed = main_.random.next() | 1;
  options.naming = {{.name = name.substr(0, name.find(':')), .open = source}};
  auto state = std::make_shared<State>(main_.loop, std::move(name), std::move(options));
  state->target = main_.target;
  // The options are those of the client, which has checked them. What cannot be opened is left to the main cluster.
  return state->start() ? state : nullptr;
}

void RoutedClusters::update(const NamingRoutes& routes) {
  by_index_.assign(routes.clusters.size(), nullptr);
  auto earlier = std::exchange(used_, {});
  for (std::size_t i = 0; i < routes.clusters.size(); ++i) {
    if (i == routes.main) continue;
    const std::string& name = routes.clusters[i];
    std::shared_ptr<State> state;
    if (auto found = earlier.extract(name)) state = std::move(found.mapped());
    if (auto found = left_.extract(name)) state = std::move(found.mapped().state);
    by_index_[i] = state != nullptr ? std::move(state) : open(routes, name);
    if (by_index_[i] != nullptr) used_.emplace(name, by_index_[i]);
  }
  const Time now = main_.loop.now();
  for (auto& [name, state] : earlier) left_.emplace(name, Left{std::move(state), now});
  if (!left_.empty() && !closer_.running()) closer_.start(main_.loop, main_.loop.after(unused_interval));
}

void RoutedClusters::end_unused() {
  const Time before = main_.loop.now() - unused_interval;
  std::erase_if(left_, [before](const auto& entry) {
    const auto& [state, since] = entry.second;
    if (since > before || state.use_count() != 1 || !state->unused()) return false;
    state->end("no route leads to this cluster any longer");
    state->naming.reset();
    return true;
  });
  if (!left_.empty()) closer_.start(main_.loop, main_.loop.after(unused_interval));
}

void RoutedClusters::end(const char* why) {
  closer_.stop();
  for (const auto& [name, state] : used_) state->end(why);
  for (const auto& [name, left] : left_) left.state->end(why);
}

void RoutedClusters::forget_names() noexcept {
  for (const auto& [name, state] : used_) state->naming.reset();
  for (const auto& [name, left] : left_) left.state->naming.reset();
}

}  // namespace hawser::detail
