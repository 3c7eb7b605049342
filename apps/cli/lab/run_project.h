#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lab/model/projection.h"

namespace hawser::cli::lab {

struct ProjectOptions {
  double gbit_per_s = 200;
  double latency_us = 0;  // Known half round trip of a small message; 0: 2 us, which is varied.
  double call_ns = 0;     // Known processor time of a side for each call; 0: 290, which is varied.
  unsigned draws = 16;    // Draws of the uncertain constants for the ranges.
  std::uint64_t seed = 1;
};

// A figure that coro_rpc publishes about itself: calls/s between two hosts over RoCE v2 at 180 Gb/s.
struct PublishedRate {
  std::size_t bytes;
  unsigned in_flight;
  double calls_per_s;
};

// Returns a text such as "43 k to 1.6 M" with two significant digits. The low end is rounded down and the high end up.
// The text is one figure if both are equal.
std::string rounded_range(const hawser::lab::Range& range);
// Returns a line of the table.
std::string project_row(const PublishedRate& cell, const hawser::lab::CallRanges& ranges);
// Prints the ranges of calls/s of the transport on a simulated card. Returns the program's exit status.
int run_project(const ProjectOptions& options);

}  // namespace hawser::cli::lab
