#pragma once

#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

inline constexpr double connect_s_max = 10;

// How many calls are kept in flight: fewer than the cell's concurrency where memory forbids, see
// Options::bytes_in_flight_max.
unsigned calls_at_once(const Options& options, const Cell& cell);

// Measures `cells`, all with the same transport and way of waiting, against the server at `address`, and tells of each.
// True if the server was there to the end; errors within cells are the cells'.
bool play_client(const Options& options, const std::string& address, const std::vector<Cell>& cells,
                 const EventWriter& events);

}  // namespace hawser::bench
