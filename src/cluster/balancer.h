#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cluster/backend.h"
#include "cluster/list_update.h"
#include "cluster/outlier_detector.h"
#include "cluster/picker.h"
#include "hawser/balancing.h"

namespace hawser::cluster {

// How a call ended, as far as its backend is judged by it.
enum class Judgement : std::uint8_t {
  success,   // The backend answered, perhaps with an error of the application.
  failure,   // It did not answer, or broke.
  pushback,  // It refused the call because it is overloaded.
  slow,      // It was cancelled because another backend was faster. It would have taken longer.
  none,      // The end says nothing, such as a cancellation.
};

// Chooses backends for calls: by priority, zone, reachability, exclusion, limits, slow start, and one of the pickers.
// It does no I/O, reads no clock and is not shared: the same calls with the same seed give the same choices.
class Balancer {
 public:
  // `make` makes a Backend, or an object of a derived class.
  Balancer(const BalancingOptions& options, std::uint64_t seed, std::function<std::shared_ptr<Backend>()> make);
  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;

  // Replaces the list by `endpoints`, or by the subset of them that the options want. Addresses that stay keep their
  // Backend with its measurements. Returns the backends that left.
  std::vector<std::shared_ptr<Backend>> update(const std::vector<Endpoint>& endpoints);
  // The same, by work(). The list before serves until then. `endpoints` stays as it is until work() has returned false,
  // or until the next call of update() or begin_update().
  void begin_update(const std::vector<Endpoint>& endpoints);
  // Calls `each` for some of the backends that left: once for each of them. Call it behind work(). Needs no memory.
  template <std::invocable<std::shared_ptr<Backend>> Each>
  void take_left(Each each) {
    const std::size_t end = retired_.size() - std::min(retired_.size(), ListUpdate::endpoints_of_step);
    while (retired_.size() > end) {
      std::shared_ptr<Backend> backend = std::move(retired_.back());
      retired_.pop_back();
      if (!listed(*backend)) each(std::move(backend));
    }
    drop_retired_addresses();
  }
  bool has_left() const noexcept { return !retired_.empty() || !retired_by_address_.empty(); }
  // A list is being put into effect.
  bool updates() const noexcept { return endpoints_ != nullptr; }
  // The backend has a place in the present list.
  bool listed(const Backend& backend) const noexcept { return backend.list == list_; }

  // Replaces the options by others with the same zone and subset. Measurements and ejections stay. If another kind of
  // choice takes work(), the present one goes on meanwhile. If there is no memory, nothing changes.
  void set_options(const BalancingOptions& options);
  const BalancingOptions& options() const noexcept { return options_; }

  // The server of the backend has reported its load.
  void observe_load(Backend& backend, const LoadReport& report, Time now) noexcept;
  // Gives the backends weights by the reports, by work(). Nothing, while it still does so: the last endpoints of a long
  // list would never have their turn.
  void begin_weights(Time now);

  // Does a bounded part of the work that update(), begin_update() or begin_weights() has left. True if there is more.
  // Choices need not wait for it.
  bool work();

  struct Choice {
    Backend* ready = nullptr;  // Gets the call. Null: no backend is ready.
    Backend* idle = nullptr;   // Should be connected, because it would have been chosen.
  };
  Choice choose(Time now, std::uint64_t key, std::span<const Backend* const> avoided = {}) noexcept;

  void set_reach(Backend& backend, Reach reach, Time now) noexcept;
  void begin_call(Backend& backend, Time now) noexcept;
  // True if the interval of the backend's priority was judged for outliers: see ejections().
  bool end_call(Backend& backend, Judgement judgement, Duration latency, Time now);

  // The ejections of the interval that was judged last. The backend is listed.
  const Ejections& ejections(const Backend& backend) const noexcept {
    return tiers_[backend.tier].outliers->ejections();
  }
  // Why the backend, which is listed, gets calls or none. For people.
  std::string_view standing(const Backend& backend, Time now) const noexcept;

  // In the order of the list.
  const std::vector<std::shared_ptr<Backend>>& backends() const noexcept { return backends_; }
  // Number of listed backends with that reach.
  std::size_t count(Reach reach) const noexcept;
  // Number of listed backends that are ready and excluded.
  std::size_t excluded() const noexcept;

 private:
  // The backends of one priority; with zones, those of this zone or those of the others.
  struct Tier {
    std::vector<Backend*> backends;
    std::unique_ptr<Picker> picker;
    std::unique_ptr<Picker> next;  // Takes the place of the picker when it is whole. Null: there is none.
    std::unique_ptr<OutlierDetector> outliers;
    std::size_t reach[4] = {};  // By Reach.
    std::size_t excluded = 0;   // Backends for which excluded() holds.
    std::uint64_t in_flight = 0;
    bool own_zone = false;  // The next tier has the other zones.

    // Counts a backend by its state. One whose state changes is removed before.
    void add(const Backend& backend) noexcept;
    void remove(const Backend& backend) noexcept;
    std::size_t in(Reach one) const noexcept { return reach[static_cast<std::size_t>(one)]; }
  };

  void retire(ListUpdate update);
  void drop_retired_addresses() noexcept;
  bool work_on_update();
  bool work_on_weights();
  void put_into_effect();
  bool leaves_zone(const Tier& tier) noexcept;
  // True if exclusions are ignored, because too few backends are left.
  bool panics(const Tier& tier) const noexcept;
  // Returns true if a ready backend was chosen. Clears `may_connect` if backends of this tier may become ready.
  bool choose_in(Tier& tier, Time now, std::uint64_t key, std::span<const Backend* const> avoided, bool& may_connect,
                 Choice& choice) noexcept;
  Backend* pick(Tier& tier, PickQuery query) noexcept;
  double share(const Backend& backend, Time now) const noexcept;

  BalancingOptions options_;
  const std::function<std::shared_ptr<Backend>()> make_;  // With a limit, if the options want one.
  const std::uint64_t seed_;
  Random random_;
  std::uint64_t list_ = 1;  // Number of the present list. Backends without a list have 0.
  std::vector<std::shared_ptr<Backend>> backends_;
  BackendsByAddress by_address_;
  std::vector<Tier> tiers_;  // In the order of priority.
  // The list that is being put into effect. Null: none.
  const std::vector<Endpoint>* endpoints_ = nullptr;
  std::optional<ListUpdate> update_;         // Empty: not begun.
  std::optional<LoadWeightUpdate> weights_;  // For the tier weights_tier_. Empty: no update is in progress.
  std::size_t weights_tier_ = 0;
  Time weights_at_{};
  // Earlier lists had them. They are released in steps.
  std::vector<std::shared_ptr<Backend>> retired_;
  std::vector<BackendsByAddress> retired_by_address_;
};

}  // namespace hawser::cluster
