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
  std::vector<std::shared_ptr<State>> by_index(routes.clusters.size());
  std::map<std::string, std::shared_ptr<State>> used;
  for (std::size_t i = 0; i < routes.clusters.size(); ++i) {
    if (i == routes.main) continue;
    const std::string& name = routes.clusters[i];
    if (const auto found = used_.find(name); found != used_.end()) {
      by_index[i] = found->second;
    } else if (const auto again = left_.find(name); again != left_.end()) {
      by_index[i] = again->second.state;
    } else {
      by_index[i] = open(routes, name);
    }
    if (by_index[i] != nullptr) used.emplace(name, by_index[i]);
  }
  const Time now = main_.loop.now();
  std::map<std::string, Left> left;
  for (const auto& [name, state] : used_) {
    if (!used.contains(name)) left.emplace(name, Left{state, now});
  }
  // Nothing below needs memory.
  for (const auto& [name, state] : used) left_.erase(name);
  left_.merge(left);
  by_index_.swap(by_index);
  used_.swap(used);
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
