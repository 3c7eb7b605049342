#include "cluster/balancer.h"

#include <algorithm>
#include <new>
#include <tuple>
#include <utility>
namespace hawser::cluster {
namespace {

constexpr double slow_start_share_min = 0.1;
constexpr unsigned slow_start_tries = 4;

// The options by which a picker is made.
auto fields_of_pickers(const BalancingOptions& options) noexcept {
  return std::tuple(options.kind, options.choices, options.load_max, options.ring_points_min, options.ring_points_max,
                    options.ring_points_each, options.latency_decay);
}

}  // namespace

Balancer::Balancer(const BalancingOptions& options, std::uint64_t seed, std::function<std::shared_ptr<Backend>()> make)
    : options_(options),
      make_([this, make = std::move(make)] {
        std::shared_ptr<Backend> backend = make();
        if (options_.endpoint_limit) {
          backend->limit = std::make_unique<ConcurrencyLimit>(*options_.endpoint_limit, random_.next());
          backend->in_flight_max = backend->limit->limit();
        }
        return backend;
      }),
      seed_(seed),
      random_(seed) {}

// ---- Lists ----

std::vector<std::shared_ptr<Backend>> Balancer::update(const std::vector<Endpoint>& endpoints) {
  begin_update(endpoints);
  while (work_on_update()) {
  }
  std::vector<std::shared_ptr<Backend>> left;
  while (has_left()) {
    take_left([&left](std::shared_ptr<Backend> backend) { left.push_back(std::move(backend)); });
  }
  return left;
}

void Balancer::begin_update(const std::vector<Endpoint>& endpoints) {
  endpoints_ = &endpoints;
  if (!update_) return;
  ListUpdate before = std::move(*update_);
  update_.reset();
  try {
    retire(std::move(before));
  } catch (const std::bad_alloc&) {
    return;  // Backends that only this list had have no calls and no connections.
  }
}

void Balancer::retire(ListUpdate update) {
  retired_by_address_.reserve(retired_by_address_.size() + 1);
  retired_.insert(retired_.end(), std::make_move_iterator(update.backends.begin()),
                  std::make_move_iterator(update.backends.end()));
  retired_by_address_.push_back(std::move(update.by_address));
}

void Balancer::drop_retired_addresses() noexcept {
  for (std::size_t i = 0; i < ListUpdate::endpoints_of_step && !retired_by_address_.empty(); ++i) {
    BackendsByAddress& map = retired_by_address_.back();
    if (!map.empty()) map.erase(map.begin());
    if (map.empty()) retired_by_address_.pop_back();
  }
}

bool Balancer::work_on_update() {
  if (endpoints_ == nullptr) return false;
  try {
    if (!update_) update_.emplace(*endpoints_, options_, seed_, by_address_, make_);
    if (update_->work()) return true;
    put_into_effect();
  } catch (...) {
    update_.reset();  // It begins again.
    throw;
  }
  update_.reset();
  endpoints_ = nullptr;
  return false;
}

// Without memory nothing changes.
void Balancer::put_into_effect() {
  std::vector<Tier> tiers;
  for (auto& [group, backends] : update_->groups) {
    Tier tier;
    tier.own_zone = update_->groups.contains({group.first, true}) && !group.second;
    if (tiers.size() < tiers_.size()) {  // A picker goes on from its place.
      const Tier& before = tiers_[tiers.size()];
      tier.picker = before.picker->copy();
      if (before.next != nullptr) tier.next = before.next->copy();
    } else {
      tier.picker = make_picker(options_, random_.next());
      tier.outliers = std::make_unique<OutlierDetector>(options_.outliers, seed_);
    }
    tier.picker->assign(backends);
    if (tier.next != nullptr) tier.next->assign(backends);
    // Nothing else can serve, so that the loop waits: about 20 ms for Maglev's table of 1,000 backends.
    while (!tier.picker->whole()) tier.picker->work();
    tier.backends = std::move(backends);
    tiers.push_back(std::move(tier));
  }
  retired_.reserve(retired_.size() + backends_.size());
  retired_by_address_.reserve(retired_by_address_.size() + 1);
  // Nothing below needs memory.
  ++list_;
  weights_.reset();  // The next update has the new tiers.
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    Tier& tier = tiers[i];
    if (i < tiers_.size()) tier.outliers = std::move(tiers_[i].outliers);  // An interval is not cut short.
    for (Backend* const backend : tier.backends) {
      backend->tier = i;
      backend->list = list_;
      tier.in_flight += backend->in_flight;
      tier.add(*backend);
    }
  }
  tiers_ = std::move(tiers);
  std::swap(backends_, update_->backends);
  std::swap(by_address_, update_->by_address);
  retire(std::move(*update_));  // It has those of the list before.
}

void Balancer::set_options(const BalancingOptions& options) {
  const bool picks_otherwise = fields_of_pickers(options) != fields_of_pickers(options_);
  std::vector<std::unique_ptr<Picker>> pickers;
  for (std::size_t i = 0; picks_otherwise && i < tiers_.size(); ++i) {
    pickers.push_back(make_picker(options, random_.next()));
    pickers.back()->assign(tiers_[i].backends);
  }
  BalancingOptions taken = options;
  // Nothing below needs memory.
  options_ = std::move(taken);
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    Tier& tier = tiers_[i];
    if (picks_otherwise) {
      tier.next = std::move(pickers[i]);
      if (tier.next->whole()) tier.picker = std::move(tier.next);
    }
    tier.outliers->set_options(options_.outliers);
    if (!options_.load_weights) {
      for (Backend* const backend : tier.backends) backend->load_weight = 0;
    }
    if (options_.outliers.enabled) continue;
    for (Backend* const backend : tier.backends) {
      tier.remove(*backend);
      backend->outlier = false;
      backend->ejected_until = {};
      tier.add(*backend);
    }
  }
}

bool Balancer::work() {
  if (work_on_update()) return true;
  if (has_left()) return true;
  if (work_on_weights()) return true;
  return std::ranges::any_of(tiers_, [](Tier& tier) {
    if (tier.next == nullptr) return tier.picker->work();
    tier.next->work();
    if (tier.next->whole()) tier.picker = std::move(tier.next);
    return true;
  });
}

void Balancer::observe_load(Backend& backend, const LoadReport& report, Time now) noexcept {
  if (options_.load_weights) backend.load.observe(report, now, *options_.load_weights);
}

void Balancer::begin_weights(Time now) {
  if (!options_.load_weights || tiers_.empty() || weights_) return;
  weights_.emplace(now);
  weights_tier_ = 0;
  weights_at_ = now;
}

bool Balancer::work_on_weights() {
  if (!weights_) return false;
  if (!options_.load_weights || weights_tier_ >= tiers_.size()) {
    weights_.reset();
    return false;
  }
  if (weights_->work(tiers_[weights_tier_].backends, *options_.load_weights)) return true;
  weights_.emplace(weights_at_);
  ++weights_tier_;
  return true;
}

Balancer::Choice Balancer::choose(Time now, std::uint64_t key, std::span<const Backend* const> avoided) noexcept {
  Choice choice;
  bool may_connect = true;  // Backends of a lower priority are connected only if no higher one may still serve.
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const bool leaves = tiers_[i].own_zone && leaves_zone(tiers_[i]);
    if (leaves && choose_in(tiers_[i + 1], now, key, avoided, may_connect, choice)) return choice;
    // A call that would have left its zone stays if no other zone can serve.
    if (choose_in(tiers_[i], now, key, avoided, may_connect, choice)) return choice;
  }
  return choice;
}

void Balancer::Tier::add(const Backend& backend) noexcept {
  ++reach[static_cast<std::size_t>(backend.reach)];
  excluded += backend.excluded() ? 1 : 0;
}

void Balancer::Tier::remove(const Backend& backend) noexcept {
  --reach[static_cast<std::size_t>(backend.reach)];
  excluded -= backend.excluded() ? 1 : 0;
}

bool Balancer::choose_in(Tier& tier, Time now, std::uint64_t key, std::span<const Backend* const> avoided,
                         bool& may_connect, Choice& choice) noexcept {
  const std::size_t ready = tier.in(Reach::ready);
  PickQuery query{.now = now,
                  .key = key,
                  .random = random_,
                  .ready_only = !may_connect,
                  .ejected_too = panics(tier),
                  .in_flight = tier.in_flight,
                  .avoided = avoided};
  if (may_connect && tier.in(Reach::idle) != 0) {
    Backend* const backend = pick(tier, query);
    if (backend != nullptr && backend->reach == Reach::ready) {
      choice.ready = backend;
      return true;
    }
    if (choice.idle == nullptr) choice.idle = backend;
  }
  query.ready_only = true;
  if (ready != 0) choice.ready = pick(tier, query);
  if (choice.ready == nullptr && tier.in(Reach::idle) + tier.in(Reach::connecting) != 0) may_connect = false;
  return choice.ready != nullptr;
}

bool Balancer::panics(const Tier& tier) const noexcept {
  const std::size_t ready = tier.in(Reach::ready);
  return static_cast<double>(ready - tier.excluded) <
         options_.panic_threshold * static_cast<double>(ready + tier.in(Reach::failed));
}

// Calls leave the zone as far as its endpoints, with the reserve, cannot serve their share.
bool Balancer::leaves_zone(const Tier& tier) noexcept {
  const std::size_t missing = tier.in(Reach::failed) + tier.excluded;
  if (missing == 0) return false;
  const double left = static_cast<double>(tier.backends.size() - missing) / static_cast<double>(tier.backends.size());
  return !random_.chance(std::min(1.0, left * options_.zone_reserve));
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
  if (reach == Reach::ready && backend.reach != Reach::ready) {
    backend.ready_since = now;
    backend.load.reset();
  }
  if (listed(backend)) tiers_[backend.tier].remove(backend);
  backend.reach = reach;
  if (listed(backend)) tiers_[backend.tier].add(backend);
}

void Balancer::begin_call(Backend& backend, Time now) noexcept {
  ++backend.in_flight;
  backend.breaker.begin_call(now);
  if (listed(backend)) ++tiers_[backend.tier].in_flight;
}

bool Balancer::end_call(Backend& backend, Judgement judgement, Duration latency, Time now) {
  const std::uint32_t in_flight = backend.in_flight--;
  if (listed(backend)) --tiers_[backend.tier].in_flight;
  Duration counted = latency;  // By which p2c chooses.
  switch (judgement) {
    case Judgement::none: backend.breaker.forget(now - latency); return false;
    case Judgement::slow:
      backend.breaker.forget(now - latency);
      if (static_cast<double>(latency.count()) > backend.latency.value(now, options_.latency_decay)) {
        backend.latency.observe(latency, now, options_.latency_decay);
      }
      return false;
    case Judgement::success: ++backend.successes; break;
    case Judgement::failure:
      ++backend.failures;
      counted = std::max(latency, options_.failure_latency);
      break;
    case Judgement::pushback:
      ++backend.failures;
      counted = std::max(latency, options_.pushback_latency);
      break;
  }
  backend.latency.observe(counted, now, options_.latency_decay);
  if (backend.limit != nullptr && judgement != Judgement::pushback) {
    backend.limit->observe(latency, in_flight, now);
    backend.in_flight_max = backend.limit->limit();
  }
  const bool changes = listed(backend) && (judgement == Judgement::failure || !backend.breaker.closed());
  if (changes) tiers_[backend.tier].remove(backend);
  if (judgement == Judgement::failure) {
    backend.breaker.fail(options_.breaker, now - latency, now);
  } else {
    backend.breaker.succeed(now - latency);
  }
  if (!listed(backend)) return false;
  Tier& tier = tiers_[backend.tier];
  if (changes) tier.add(backend);
  if (!tier.outliers->judge(tier.backends, now)) return false;
  tier.excluded = 0;
  for (Backend* const one : tier.backends) {
    one->outlier = one->ejected(now);
    tier.excluded += one->excluded() ? 1 : 0;
  }
  return true;
}

std::string_view Balancer::standing(const Backend& backend, Time now) const noexcept {
  const Tier& own = tiers_[backend.tier];
  switch (backend.reach) {
    case Reach::idle: return "no call: no connection is needed yet";
    case Reach::connecting: return "no call: the connection is being opened";
    case Reach::failed: return "no call: it cannot be reached";
    case Reach::ready: break;
  }
  if (backend.full()) return "no call: it has as many calls in flight as its limit permits";
  if (backend.ejected(now) || !backend.breaker.closed()) {
    if (panics(own) || own.in(Reach::ready) == own.excluded) {
      return "calls: it is excluded, but too few others can serve";
    }
    if (backend.ejected(now)) return "no call: it is excluded as an outlier";
    return backend.breaker.open_for(now) > Duration::zero() ? "no call: its breaker is open, after failures in a row"
                                                            : "one call at a time: its breaker tries it";
  }
  for (std::size_t i = 0; i < backend.tier; ++i) {
    const Tier& before = tiers_[i];
    if (before.in(Reach::ready) == 0) continue;
    const bool same_priority = before.own_zone && i + 1 == backend.tier;
    if (!same_priority) return "no call: endpoints of a lower priority number can serve";
    const bool missing = before.in(Reach::failed) + before.excluded != 0;
    return missing ? "calls that the zone of the client cannot serve" : "no call: the zone of the client can serve";
  }
  return "calls";
}

std::size_t Balancer::excluded() const noexcept {
  std::size_t sum = 0;
  for (const Tier& tier : tiers_) sum += tier.excluded;
  return sum;
}

std::size_t Balancer::count(Reach reach) const noexcept {
  std::size_t sum = 0;
  for (const Tier& tier : tiers_) sum += tier.in(reach);
  return sum;
}

}  // namespace hawser::cluster
