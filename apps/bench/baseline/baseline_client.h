#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Measures `cells` on bare sockets against play_baseline_server() in the process `server`. Returns true if the server
// was reachable until the end.
bool play_baseline_client(const RunOptions& options, const std::string& address, pid_t server,
                          const std::vector<Cell>& cells, const EventWriter& events);

}  // namespace hawser::bench
