#pragma once

#include "bench/load/events.h"
#include "bench/run/cell.h"

namespace hawser::bench {

// Sends back what comes on bare sockets, or bare rings, for cells like this one, until it is killed. False if it could
// not.
bool play_baseline_server(const Cell& cell, const EventWriter& events);

}  // namespace hawser::bench
