#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lab/model/block_load.h"
#include "lab/model/projection.h"

namespace hawser::cli::lab {

enum class ProjectedLoad : std::uint8_t { calls, block };

struct ProjectOptions {
  ProjectedLoad load = ProjectedLoad::calls;
  double gbit_per_s = 0;  // Rate of the link; 0: gbit_per_s_usual().
  double latency_us = 0;  // Known half round trip of a small message; 0: 2 us, which is varied.
  double call_ns = 0;     // Known processor time of a side for each call; 0: 290, which is varied.
  unsigned draws = 16;    // Draws of the uncertain constants for the ranges.
  std::uint64_t seed = 1;
};

// Rate of the published figures beside the projection: 180 Gb/s of a card of 200, and two ports of 25 of a block store.
double gbit_per_s_usual(ProjectedLoad load) noexcept;

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
// Returns a line of the tables of a block store: the projection, and the model of the published store.
std::string block_row(const hawser::lab::BlockProjection& row, const hawser::lab::PublishedBlock& published);
std::string block_fit_row(const hawser::lab::PublishedBlock& published);
// Prints the ranges of the transport on a simulated card. Returns the program's exit status.
int run_project(const ProjectOptions& options);

}  // namespace hawser::cli::lab
