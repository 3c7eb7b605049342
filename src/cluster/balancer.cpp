#include "cluster/balancer.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hawser::cluster {
namespace {

constexpr double slow_start_share_min = 0.1;
constexpr unsigned slow_start_tries = 4;

}  // namespace

Balancer::Balancer(const BalancingOptions& options, std::uint64_t seed, std::function<std::shared_ptr<Backend>()> make)
    : options_(options), make_(std::move(make)), random_(seed) {}

std::vector<std::shared_ptr<Backend>> Balancer::update(const std::vector<Endpoint>& endpoints) {
  std::unordered_map<std::string_view, std::shared_ptr<Backend>> known = std::move(by_address_);
  by_address_.clear();
  backends_.clear();
  for (const Endpoint& endpoint : endpoints) {
    if (by_address_.contains(endpoint.address)) continue;
    std::shared_ptr<Backend> backend;
    if (const auto place = known.find(endpoint.address); place != known.end()) {
      backend = std::move(place->second);
      known.erase(place);  // Before its key changes.
    } else {
      backend = make_();
    }
    backend->endpoint = endpoint;
    backends_.push_back(backend);
    by_address_.emplace(backend->endpoint.address, std::move(backend));
  }
  make_tiers();
  std::vector<std::shared_ptr<Backend>> left;
  for (auto& [address, backend] : known) {
    backend->listed = false;
    left.push_back(std::move(backend));
  }
  return left;
}

void Balancer::make_tiers() {
  std::map<std::uint32_t, std::vector<Backend*>> by_priority;
  for (const auto& backend : backends_) by_priority[backend->endpoint.priority].push_back(backend.get());
  std::vector<Tier> tiers;
  for (auto& [priority, backends] : by_priority) {
    Tier tier;
    if (tiers.size() < tiers_.size()) {  // A picker goes on from its place, and an interval is not cut short.
      tier.picker = std::move(tiers_[tiers.size()].picker);
      tier.outliers = std::move(tiers_[tiers.size()].outliers);
    } else {
      tier.picker = make_picker(options_, random_.next());
      tier.outliers = std::make_unique<OutlierDetector>(options_.outliers);
    }
    tier.picker->assign(backends);
    tier.backends = std::move(backends);
    for (Backend* const backend : tier.backends) {
      backend->tier = tiers.size();
      tier.in_flight += backend->in_flight;
      ++tier.reach[static_cast<std::size_t>(backend->reach)];
    }
    tiers.push_back(std::move(tier));
  }
  tiers_ = std::move(tiers);
}

Balancer::Choice Balancer::choose(Time now, std::uint64_t key, std::span<const Backend* const> avoided) noexcept {
  Choice choice;
  bool may_connect = true;  // Backends of a lower priority are connected only if no higher one may still serve.
  for (Tier& tier : tiers_) {
    const std::size_t ready = tier.in(Reach::ready);
    const double usable = static_cast<double>(ready) - static_cast<double>(std::min(ready, tier.ejected));
    const auto tried = static_cast<double>(ready + tier.in(Reach::failed));
    PickQuery query{.now = now,
                    .key = key,
                    .random = random_,
                    .ready_only = !may_connect,
                    .ejected_too = usable < options_.panic_threshold * tried,
                    .in_flight = tier.in_flight,
                    .avoided = avoided};
    if (may_connect && tier.in(Reach::idle) != 0) {
      Backend* const backend = pick(tier, query);
      if (backend != nullptr && backend->reach == Reach::ready) {
        choice.ready = backend;
        return choice;
      }
      if (choice.idle == nullptr) choice.idle = backend;
    }
    query.ready_only = true;
    if (ready != 0) choice.ready = pick(tier, query);
    if (choice.ready != nullptr) return choice;
    if (tier.in(Reach::idle) + tier.in(Reach::connecting) != 0) may_connect = false;
  }
  return choice;
}

// An exclusion never makes a call fail: if it leaves no backend, it is ignored.
Backend* Balancer::pick(Tier& tier, PickQuery query) noexcept {
  Backend* backend = tier.picker->pick(query);
  if (backend == nullptr && !query.ejected_too) {
    query.ejected_too = true;
    backend = tier.picker->pick(query);
  }
  if (backend == nullptr || options_.slow_start == Duration::zero() || !tier.picker->spreads()) return backend;
  for (unsigned i = 0; i < slow_start_tries && !random_.chance(share(*backend, query.now)); ++i) {
    backend = tier.picker->pick(query);
  }
  return backend;
}

double Balancer::share(const Backend& backend, Time now) const noexcept {
  if (backend.reach != Reach::ready || now - backend.ready_since >= options_.slow_start) return 1;
  return std::max(slow_start_share_min, static_cast<double>((now - backend.ready_since).count()) /
                                            static_cast<double>(options_.slow_start.count()));
}

void Balancer::set_reach(Backend& backend, Reach reach, Time now) noexcept {
  if (backend.listed) {
    --tiers_[backend.tier].reach[static_cast<std::size_t>(backend.reach)];
    ++tiers_[backend.tier].reach[static_cast<std::size_t>(reach)];
  }
  if (reach == Reach::ready && backend.reach != Reach::ready) backend.ready_since = now;
  backend.reach = reach;
}

void Balancer::begin_call(Backend& backend) noexcept {
  ++backend.in_flight;
  if (backend.listed) ++tiers_[backend.tier].in_flight;
}

void Balancer::end_call(Backend& backend, Judgement judgement, Duration latency, Time now) {
  --backend.in_flight;
  if (backend.listed) --tiers_[backend.tier].in_flight;
  switch (judgement) {
    case Judgement::none: return;
    case Judgement::slow:
      if (static_cast<double>(latency.count()) > backend.latency.value(now, options_.latency_decay)) {
        backend.latency.observe(latency, now, options_.latency_decay);
      }
      return;
    case Judgement::success:
      ++backend.successes;
      backend.latency.observe(latency, now, options_.latency_decay);
      break;
    case Judgement::failure:
      ++backend.failures;
      backend.latency.observe(std::max(latency, options_.failure_latency), now, options_.latency_decay);
      break;
    case Judgement::pushback:
      ++backend.failures;
      backend.latency.observe(std::max(latency, options_.pushback_latency), now, options_.latency_decay);
      break;
  }
  if (!backend.listed) return;
  Tier& tier = tiers_[backend.tier];
  if (!tier.outliers->judge(tier.backends, now)) return;
  tier.ejected = static_cast<std::size_t>(
      std::ranges::count_if(tier.backends, [&](const Backend* one) { return one->ejected(now); }));
}

std::size_t Balancer::count(Reach reach) const noexcept {
  std::size_t sum = 0;
  for (const Tier& tier : tiers_) sum += tier.in(reach);
  return sum;
}

}  // namespace hawser::cluster
