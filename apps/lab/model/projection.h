#pragma once

#include <algorithm>
#include <cstdint>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "transport/sim/rdma/sim_parameters.h"

namespace hawser::lab {

// Calls over RDMA connections of the transport, on a simulated device. The result is a projection, not a measurement:
// the device's constants (sim_constants.h) and the processor's cost of a call are fitted or assumed.
struct CallPlan {
  transport::SimParameters device;
  RdmaOptions options;  // The device's name must be empty.
  std::size_t request_bytes = 128;
  std::size_t reply_bytes = 16;
  unsigned in_flight = 1;      // Calls in flight on one connection.
  std::uint64_t calls = 2000;  // Number of measured calls.
  // Number of calls before the measured ones, in which the connection registers the memory that it keeps. 0: eight for
  // each call in flight, at least 200.
  std::uint64_t warm_up_calls = 0;
  // Processor time of one side for one call, without the verbs: rpc, codec and loop. The value is 1,150 counted
  // instructions at an assumed rate of 4 per ns.
  double call_ns = 290;
  double copy_byte_ns = 0.05;  // Assumed cost of copying a byte of a payload into or out of a chunk.
  std::uint64_t seed = 1;
};

struct CallResult {
  double calls_per_s = 0;
  double p90_us = 0;
  double p99_us = 0;
};

Result<CallResult> project_calls(const CallPlan& plan);

// Range of an uncertain figure.
struct Range {
  double low = 0;
  double high = 0;

  void include(double value) noexcept {
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  }
  bool contains(double value) const noexcept { return low <= value && value <= high; }
};

// Selects the uncertain values of a plan that are varied.
struct Uncertainty {
  unsigned draws = 16;  // Number of draws besides the plan itself.
  bool call = true;     // Vary call_ns by the factor of Origin::fitted_together, copy_byte_ns by that of assumed.
  // Known half round trip of a small message; the latency of the link is adjusted so that it results. 0 if unknown.
  double half_trip_us = 0;
};

struct CallRanges {
  Range calls_per_s;
  Range p90_us;
  Range p99_us;
};

// Returns the smallest and the largest results of the plan itself and of draws from its uncertainty. Draw i is the same
// machine for all plans with the same device and seed. The same seed gives the same ranges.
Result<CallRanges> project_ranges(const CallPlan& plan, const Uncertainty& uncertainty);

}  // namespace hawser::lab
