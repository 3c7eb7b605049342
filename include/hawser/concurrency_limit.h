#pragma once

#include "hawser/time.h"

namespace hawser {

// A limit of calls in flight that follows the latency: it grows while calls reach it and remain fast, and shrinks when
// they become slower. docs/clusters.md compares it with others.
struct LimitOptions {
  unsigned initial = 20;
  unsigned min = 4;  // At least 1.
  unsigned max = 1000;
  // The limit shrinks while the mean latency exceeds this number of times the reference, which is that at half of the
  // limit. Above 1.
  double tolerance = 1.7;
  // While calls reach the limit, it is halved for two periods of 100 ms after this time (differing by at most a
  // quarter), to measure the reference.
  Duration probe_interval = std::chrono::seconds(10);
};

}  // namespace hawser
