#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "hawser/concurrency_limit.h"
#include "hawser/time.h"

// How a ClusterClient chooses the endpoint of a call. docs/clusters.md compares the choices.
namespace hawser {

enum class Balancing : std::uint8_t {
  p2c,                   // The cheaper one of two random endpoints: measured latency, with a call for each in flight.
  least_request,         // The one with the fewest calls in flight among `choices` random endpoints.
  round_robin,           // In turn, without regard to weights.
  weighted_round_robin,  // In turn, as often as the weights say: those of the list, or BalancingOptions::load_weights.
  random,                // By chance, as often as the weights say.
  ring_hash,             // By a key of the call, on a ring. A change of the list moves few keys.
  maglev,                // By a key of the call, by a table. Shares are more equal than on a ring.
  pick_first,            // The first one of the list that can serve.
};

// Excludes endpoints that fail more often than others (gRFC A50).
struct OutlierOptions {
  bool enabled = true;
  Duration interval = std::chrono::seconds(10);   // The calls of an interval are judged at its end.
  Duration base_time = std::chrono::seconds(30);  // Times the number of the endpoint's exclusions.
  Duration time_max = std::chrono::seconds(300);  // At least base_time counts.
  // Part of the endpoints of a priority that may be excluded at the same time. One endpoint always may.
  double excluded_max = 0.1;
  std::size_t endpoints_min = 5;  // With fewer endpoints that have enough calls, none is excluded.
  // An endpoint is excluded if its rate of success lies this number of standard deviations below the mean. Needs
  // success_rate_calls_min calls of an endpoint in an interval.
  double success_rate_deviations = 1.9;
  std::uint32_t success_rate_calls_min = 100;
  // An endpoint is excluded if at least this part of its calls fails. Needs failure_calls_min calls in an interval.
  double failure_part = 0.85;
  std::uint32_t failure_calls_min = 50;
  std::size_t failure_endpoints_min = 5;  // As endpoints_min, which is for success_rate_deviations.
  // Part of the endpoints that a rule finds which it excludes, by chance. 0: the rule is off.
  double success_rate_enforced = 1;
  double failure_enforced = 1;
  friend bool operator==(const OutlierOptions&, const OutlierOptions&) = default;
};

// Excludes an endpoint at once when calls to it fail in a row. When its time has passed, one call at a time tries the
// endpoint: a success ends the exclusion, and a failure begins a longer one.
struct BreakerOptions {
  std::uint32_t failures_max = 5;                // In a row. Refusals with `overloaded` do not count. 0: no breakers.
  Duration base_time = std::chrono::seconds(1);  // Doubles with each further exclusion, up to time_max.
  Duration time_max = std::chrono::seconds(30);
};

// The weight of an endpoint is the number of calls per second that it could serve, from the reports of its server
// (hawser/load_reports.h, gRFC A58): calls per second ÷ (utilisation + part of errors × error_penalty).
struct LoadWeightOptions {
  Duration blackout = std::chrono::seconds(10);  // From the first report until its weight counts.
  Duration expiry = std::chrono::minutes(3);     // From the last report until the weight is forgotten.
  Duration update = std::chrono::seconds(1);     // Weights change in this interval. At least 100 ms.
  double error_penalty = 1;                      // 0 or more. 0: errors do not count.
  // 0: servers send reports beside results, each of which costs a call an interceptor. Else a server is asked for a
  // report in this interval while it gets calls, from 100 ms to 24 h.
  Duration out_of_band = Duration::zero();
  friend bool operator==(const LoadWeightOptions&, const LoadWeightOptions&) = default;
};

struct BalancingOptions {
  Balancing kind = Balancing::p2c;
  unsigned choices = 2;  // For least_request, 2 to 10.
  // For ring_hash and maglev: an endpoint gets no further call while it has more than this number of times the mean of
  // the calls in flight. The next endpoint of the key gets it then. 0: no bound. Else at least 1.
  double load_max = 1.25;
  // For ring_hash: the points of all endpoints on the ring, ring_points_each times their number within these bounds.
  // From 1 to 65,536. The ring is that of gRPC (gRFC A42) with ring_points_each = 0.
  std::size_t ring_points_min = 1024;
  std::size_t ring_points_max = 4096;  // More if there are more endpoints: each has one.
  std::size_t ring_points_each = 64;   // At most 65,536.
  // For p2c: the time in which a measured latency loses 63 % of its influence.
  Duration latency_decay = std::chrono::seconds(10);
  // For p2c: a call that fails counts at least as this latency, so that an endpoint that fails fast is not preferred.
  Duration failure_latency = std::chrono::seconds(1);
  // For p2c: a call that is refused with `overloaded` counts at least as this latency.
  Duration pushback_latency = std::chrono::milliseconds(100);
  // An endpoint that becomes reachable gets its full share after this time. Its share grows linearly from 10 %. 0: at
  // once. Not for hashes and pick_first.
  Duration slow_start = Duration::zero();
  // Exclusions are ignored, so that the other endpoints are not overloaded, while less than this part of the endpoints
  // of a priority to which a connection was tried is reachable and not excluded.
  double panic_threshold = 0.5;
  OutlierOptions outliers = {};
  BreakerOptions breaker = {};
  // Limits the calls in flight at each endpoint. A call for which every endpoint is at its limit fails with
  // `overloaded`. Empty: no limit.
  std::optional<LimitOptions> endpoint_limit = {};
  // For weighted_round_robin: weights by load take the place of those of the list as soon as those of two endpoints of
  // a priority are known. Empty: they do not.
  std::optional<LoadWeightOptions> load_weights = {};
  // The zone of this client. Endpoints of the same priority in other zones get calls only for the part of this zone's
  // endpoints that is missing: while 1 / zone_reserve of them or more can serve, no call leaves the zone. Empty, or
  // with fewer than zone_endpoints_min endpoints of the priority: zones are ignored.
  std::string zone = {};
  double zone_reserve = 1.4;
  std::size_t zone_endpoints_min = 6;
  // Use only this number of endpoints of each priority (of each side of `zone`, if that is set), chosen by rendezvous
  // hashing with the seed of the client (gRFC A68). A change of the list changes few of them. 0: all.
  std::size_t subset = 0;
};

}  // namespace hawser
