#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "cluster/backend.h"
#include "hawser/balancing.h"

namespace hawser::cluster {

// Which backends may be chosen, and by what.
struct PickQuery {
  Time now;
  std::uint64_t key;  // The hash of the call's key.
  Random& random;
  bool ready_only;                          // Else idle ones, too.
  bool ejected_too;                         // Ejections and breakers are ignored.
  std::uint64_t in_flight;                  // Calls of all backends of the tier.
  std::span<const Backend* const> avoided;  // Backends that this call has tried.

  bool admits(const Backend& backend) const noexcept {
    const bool reachable = backend.reach == Reach::ready || (!ready_only && backend.reach == Reach::idle);
    return reachable && !backend.full() && (ejected_too || (!backend.ejected(now) && backend.breaker.admits(now))) &&
           (avoided.empty() || std::ranges::find(avoided, &backend) == avoided.end());
  }
};

// Chooses among the backends of one priority, in constant or logarithmic time. Does no I/O and reads no clock.
class Picker {
 public:
  virtual ~Picker() = default;
  // A picker with the same backends, which goes on from the same place.
  virtual std::unique_ptr<Picker> copy() const = 0;
  // Replaces the backends. They stay valid until the next call of this function.
  virtual void assign(std::vector<Backend*> backends) = 0;
  // Does a bounded part of the work that assign() has left. True if there is more. Once the picker was whole, pick()
  // need not wait for it.
  virtual bool work() { return false; }
  // False: work() has to be called before the first pick().
  virtual bool whole() const noexcept { return true; }
  // Null if the query admits no backend.
  virtual Backend* pick(const PickQuery& query) noexcept = 0;
  // False if the choice follows from a key or an order, which a slow start must not change.
  virtual bool spreads() const noexcept { return true; }
};

// `seed` makes clients begin at different places.
std::unique_ptr<Picker> make_picker(const BalancingOptions& options, std::uint64_t seed);

// One picker of each family of make_picker().
std::unique_ptr<Picker> make_choice_picker(const BalancingOptions& options);
std::unique_ptr<Picker> make_order_picker(Balancing kind, std::uint64_t seed);
std::unique_ptr<Picker> make_hash_picker(const BalancingOptions& options);

// Tries of a picker before it examines all backends: only if most of them are not admitted, more are needed.
inline constexpr unsigned tries_max = 16;

// The first backend from index `begin` on that the query admits; null if there is none.
inline Backend* first_admitted(std::span<Backend* const> backends, std::size_t begin, const PickQuery& query) noexcept {
  for (std::size_t i = 0; i < backends.size(); ++i) {
    Backend* const backend = backends[(begin + i) % backends.size()];
    if (query.admits(*backend)) return backend;
  }
  return nullptr;
}

}  // namespace hawser::cluster
