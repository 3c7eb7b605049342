#pragma once

#include <cstdint>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "lab/sim_parameters.h"

namespace hawser::lab {

// Calls over the transport's own RDMA connections, on a simulated device: what a card would give, if the model of it is
// right. A projection, not a measurement.
struct CallPlan {
  SimParameters device;
  RdmaOptions options;  // Without a device's name.
  std::size_t request_bytes = 128;
  std::size_t reply_bytes = 16;
  unsigned in_flight = 1;  // Calls, on one connection.
  std::uint64_t calls = 2000;
  // A side's processor for one call, beside the verbs: rpc, codec and loop. 1,150 instructions at 4 a ns.
  double call_ns = 290;
  double copy_byte_ns = 0.05;  // Payloads that are copied into and out of chunks.
  std::uint64_t seed = 1;
};

struct CallResult {
  double calls_per_s = 0;
  double p90_us = 0;
  double p99_us = 0;
};

Result<CallResult> project_calls(const CallPlan& plan);

}  // namespace hawser::lab
