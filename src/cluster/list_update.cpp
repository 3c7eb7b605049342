#include "cluster/list_update.h"

#include <algorithm>

#include "cluster/xxh64.h"

namespace hawser::cluster {

ListUpdate::ListUpdate(const std::vector<Endpoint>& endpoints, const BalancingOptions& options, std::uint64_t seed,
                       const BackendsByAddress& known, const std::function<std::shared_ptr<Backend>()>& make)
    : endpoints_(endpoints), options_(options), seed_(seed), known_(known), make_(make), chosen_(options.subset == 0) {
  if (!options_.zone.empty()) {
    for (const Endpoint& endpoint : endpoints_) ++counts_[endpoint.priority];
  }
  const std::size_t size = options_.subset == 0 ? endpoints_.size() : 0;
  backends.reserve(size);
  by_address.reserve(size);
}

ListUpdate::Group ListUpdate::group_of(const Endpoint& endpoint) const {
  const bool zones = !options_.zone.empty() && counts_.at(endpoint.priority) >= options_.zone_endpoints_min;
  return {endpoint.priority, zones && endpoint.zone != options_.zone};
}

bool ListUpdate::work() {
  std::size_t left = endpoints_of_step;
  if (!chosen_) {
    for (; left != 0 && next_ < endpoints_.size(); --left, ++next_) {
      const Endpoint& endpoint = endpoints_[next_];
      ranked_[group_of(endpoint)].push_back({xxh64(endpoint.address, seed_), next_});
    }
    if (next_ < endpoints_.size()) return true;
    choose_subset();
  }
  const std::size_t size = options_.subset == 0 ? endpoints_.size() : subset_.size();
  for (; left != 0 && next_ < size; --left, ++next_) {
    add(endpoints_[options_.subset == 0 ? next_ : subset_[next_]]);
  }
  return next_ < size;
}

void ListUpdate::choose_subset() {
  for (auto& [group, ranked] : ranked_) {
    if (ranked.size() > options_.subset) {
      std::ranges::nth_element(ranked, ranked.begin() + static_cast<std::ptrdiff_t>(options_.subset));
      ranked.resize(options_.subset);
    }
    for (const Ranked& one : ranked) subset_.push_back(one.index);
  }
  std::ranges::sort(subset_);
  chosen_ = true;
  next_ = 0;
}

void ListUpdate::add(const Endpoint& endpoint) {
  if (by_address.contains(endpoint.address)) return;
  const auto place = known_.find(endpoint.address);
  std::shared_ptr<Backend> backend = place != known_.end() ? place->second : make_();
  Endpoint& own = backend->endpoint;
  if (place == known_.end()) own.address = endpoint.address;  // Otherwise it is the key of two maps.
  own.weight = endpoint.weight;
  own.priority = endpoint.priority;
  own.zone = endpoint.zone;
  own.tags = endpoint.tags;
  groups[group_of(endpoint)].push_back(backend.get());
  backends.push_back(backend);
  by_address.emplace(own.address, std::move(backend));
}

}  // namespace hawser::cluster
