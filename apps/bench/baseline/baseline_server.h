#pragma once

#include "bench/load/events.h"
#include "bench/run/cell.h"

namespace hawser::bench {

// Serves cells with the settings of `cell` on bare sockets, or bare rings, until it is killed. Returns false if it
// could not listen.
bool play_baseline_server(const Cell& cell, const EventWriter& events);

}  // namespace hawser::bench
