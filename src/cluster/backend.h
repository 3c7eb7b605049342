#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "cluster/breaker.h"
#include "cluster/concurrency_limit.h"
#include "cluster/load_weight.h"
#include "cluster/peak_ewma.h"
#include "hawser/naming.h"
#include "hawser/time.h"

namespace hawser::cluster {

// Whether calls can be sent to a backend. Its owner reports changes to the Balancer.
enum class Reach : std::uint8_t {
  idle,        // No connection, and no reason against one.
  connecting,  // The first connection is being opened.
  ready,       // There is a connection.
  failed,      // The last attempt to connect failed. The owner tries again later.
};

// One endpoint of a list, as one client sees it. It outlives the list while calls use it.
struct Backend {
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  bool ejected(Time now) const noexcept { return now < ejected_until; }
  // Excluded by its breaker, or as an outlier when the last interval was judged. One that is not ready is not excluded,
  // because it gets no calls anyway.
  bool excluded() const noexcept { return reach == Reach::ready && (outlier || !breaker.closed()); }
  bool full() const noexcept { return in_flight >= in_flight_max; }
  double weight() const noexcept { return load_weight > 0 ? load_weight : endpoint.weight; }

  Endpoint endpoint;
  std::uint64_t list = 0;  // Number of the last list that had it: Balancer::listed().
  Reach reach = Reach::idle;
  std::uint32_t in_flight = 0;
  std::uint32_t in_flight_max = std::numeric_limits<std::uint32_t>::max();  // Limit by `limit`.
  Time ejected_until{};                                                     // By outlier detection.
  Breaker breaker;
  PeakEwma latency;
  std::unique_ptr<ConcurrencyLimit> limit;  // Null: none.
  LoadWeight load;
  double load_weight = 0;  // In place of the weight of the list. 0: that counts.
  Time ready_since{};
  // Outlier detection.
  bool outlier = false;  // It was ejected when the last interval was judged.
  std::uint32_t ejections = 0;
  std::uint32_t successes = 0;  // In the present interval.
  std::uint32_t failures = 0;   // In the present interval.
  std::size_t tier = 0;         // Index of its priority in the Balancer, while it is listed.
};

}  // namespace hawser::cluster
