#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

inline constexpr double connect_s_max = 10;

// Returns how many calls are kept in flight: fewer than the cell's concurrency if RunOptions::bytes_in_flight_max does
// not allow it.
unsigned calls_at_once(const RunOptions& options, const Cell& cell);

// Measures `cells`, which share the transport and the way of waiting, against the server at `address`, and writes an
// event for each. Returns true if the server was reachable until the end; errors within a cell are part of its result.
// A server of hawser-bench is asked for its processor time. `other`: the process of a server that only answers calls of
// Options::protocol, whose processor time the system knows.
bool play_client(const RunOptions& options, const std::string& address, const std::vector<Cell>& cells,
                 const EventWriter& events, std::optional<pid_t> other = {});

}  // namespace hawser::bench
