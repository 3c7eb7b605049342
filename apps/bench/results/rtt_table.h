#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/run/cell.h"

namespace hawser::bench {

// Cells of an --rtt-table: 4 KiB, and these numbers of calls in flight.
inline constexpr std::size_t rtt_size_bytes = 4096;
inline constexpr unsigned rtt_depths[] = {1, 2, 4, 8, 16, 32, 64};

// Returns a table of median round trips by calls in flight: a column for each transport in the order of `results`, and
// the ratio of the last transport's time to the first one's.
std::string rtt_table(const std::vector<CellResult>& results);

}  // namespace hawser::bench
