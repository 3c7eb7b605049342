#pragma once

#include <string>

#include "bench/page/page_data.h"

namespace hawser::bench {

// Of the page's eight; the same for a system wherever it is alone of its name.
unsigned colour_of(const PageGroup& group, const PageSeries& series);

// A table for each peer: how many times its calls/s ours makes, by size and concurrency. Empty without peers.
std::string heat_maps_of(const PageGroup& group);
// Throughput and latency by size and by concurrency: with one system a line for each of the other, with several a plot
// for each of the other and a line for each system. What would be a single point is left to the table.
std::string plots_of(const PageGroup& group);

}  // namespace hawser::bench
