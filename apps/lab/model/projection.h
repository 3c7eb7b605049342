#pragma once

#include <algorithm>
#include <cstdint>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "transport/sim/rdma/sim_parameters.h"

namespace hawser::lab {

// Calls over the transport's own RDMA connections, on a simulated device. A projection, not a measurement: the device's
// constants are fitted or assumed (sim_constants.h), and so is what a call costs a processor.
struct CallPlan {
  transport::SimParameters device;
  RdmaOptions options;  // Without a device's name.
  std::size_t request_bytes = 128;
  std::size_t reply_bytes = 16;
  unsigned in_flight = 1;      // Calls, on one connection.
  std::uint64_t calls = 2000;  // Measured.
  // Calls before them, in which the connection registers the memory that it keeps; 0 for eight for each in flight, 200
  // at least.
  std::uint64_t warm_up_calls = 0;
  // A side's processor for one call, beside the verbs: rpc, codec and loop. 1,150 instructions, as counted, at an
  // assumed 4 a ns.
  double call_ns = 290;
  double copy_byte_ns = 0.05;  // Assumed. Payloads that are copied into and out of chunks.
  std::uint64_t seed = 1;
};

struct CallResult {
  double calls_per_s = 0;
  double p90_us = 0;
  double p99_us = 0;
};

Result<CallResult> project_calls(const CallPlan& plan);

// A figure that nobody knows to the last digit.
struct Range {
  double low = 0;
  double high = 0;

  void include(double value) noexcept {
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  }
  bool contains(double value) const noexcept { return low <= value && value <= high; }
};

// Which of a plan's uncertain values are varied.
struct Uncertainty {
  unsigned draws = 16;  // Besides the plan as it is.
  bool call = true;     // call_ns, by the factor of what is fitted together; copy_byte_ns, of what is assumed.
  double half_trip_us =
      0;  // Of a small message, as known: the link makes up for what the other constants leave; 0 if unknown.
};

struct CallRanges {
  Range calls_per_s;
  Range p90_us;
  Range p99_us;
};

// The least and the greatest of the plan as it is and of draws from its uncertainty. Draw i is the same machine for
// each plan of the same device and seed. The same seed gives the same ranges.
Result<CallRanges> project_ranges(const CallPlan& plan, const Uncertainty& uncertainty);

}  // namespace hawser::lab
