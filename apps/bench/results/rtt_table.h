#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/run/cell.h"

namespace hawser::bench {

// The calls of an --rtt-table: 4 KiB, so many in flight.
inline constexpr std::size_t rtt_size_bytes = 4096;
inline constexpr unsigned rtt_depths[] = {1, 2, 4, 8, 16, 32, 64};

// Round trips, median, by calls in flight: a column for each transport in the order of `results`, and how often the
// first one's fits into the last one's.
std::string rtt_table(const std::vector<CellResult>& results);

}  // namespace hawser::bench
