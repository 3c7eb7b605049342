#pragma once

#include <string>

#include "bench/page/page_data.h"

namespace hawser::bench {

// Returns one of the page's eight colours: the same for a system wherever no other series has its name.
unsigned colour_of(const PageGroup& group, const PageSeries& series);

// Returns a table for each peer: Hawser's calls/s divided by the peer's, by size and concurrency. Empty without peers.
std::string heat_maps_of(const PageGroup& group);
// Plots throughput and latency by size and by concurrency. One system: a plot has a line for each value of the other
// axis. Several systems: a plot for each value of the other axis has a line for each system. Single points are not
// plotted.
std::string plots_of(const PageGroup& group);

}  // namespace hawser::bench
