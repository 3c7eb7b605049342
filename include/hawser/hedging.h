#pragma once

#include <optional>

#include "hawser/time.h"

// Copies of a slow call at other endpoints. Part of ClusterOptions.
namespace hawser {

// A call that is marked CallOptions::idempotent, and that has no result after the usual time, is also made at another
// endpoint. The first result counts, and the other copies are cancelled at their servers. A call that is not marked,
// one with streams, and one with memory for its reply (into()) has no copies.
struct HedgeOptions {
  unsigned attempts_max = 1;  // Copies of a call, with the first one: 1 to 5. 1: no hedging.
  // The usual time of a method: this part of its calls of the last 10 to 20 s took no longer. 0.5 to 0.999. A method
  // with fewer than 100 calls in that time has no copies.
  double percentile = 0.95;
  Duration delay_min = std::chrono::milliseconds(1);  // The least time until a copy is made.
  // This time in place of the measured one.
  std::optional<Duration> delay = {};
  // Copies for each call that may have copies, above 0 and at most 1. Up to 10 copies are saved for later.
  double budget = 0.1;
};

}  // namespace hawser
