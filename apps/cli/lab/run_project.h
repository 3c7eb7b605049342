#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lab/model/projection.h"

namespace hawser::cli::lab {

struct ProjectOptions {
  double gbit_per_s = 200;
  double latency_us = 0;  // Half a small message's round trip, as known; 0 for 2 us, which is varied.
  double call_ns = 0;     // Of a side's processor for each call, as known; 0 for 290, which is varied.
  unsigned draws = 16;    // Of the uncertain constants, for the ranges.
  std::uint64_t seed = 1;
};

// What coro_rpc publishes of itself over RDMA: calls/s between two hosts over RoCE v2 at 180 Gb/s.
struct PublishedRate {
  std::size_t bytes;
  unsigned in_flight;
  double calls_per_s;
};

// "43 k to 1.6 M": two significant digits, the low end rounded down and the high end up; one figure if they are the
// same.
std::string rounded_range(const hawser::lab::Range& range);
// A line of the table.
std::string project_row(const PublishedRate& cell, const hawser::lab::CallRanges& ranges);
// Prints the ranges of calls/s of the transport on a simulated card. The program's exit status.
int run_project(const ProjectOptions& options);

}  // namespace hawser::cli::lab
