#pragma once

#include <cstdint>

namespace hawser::cli::lab {

struct ProjectOptions {
  double gbit_per_s = 200;
  double latency_us = 0;  // Half a small message's round trip; 0 for the simulated device's own, 2 us.
  double call_ns = 290;   // Of a side's processor, for each call.
  std::uint64_t seed = 1;
};
// Prints the calls/s of the transport on a simulated card. The program's exit status.
int run_project(const ProjectOptions& options);

}  // namespace hawser::cli::lab
