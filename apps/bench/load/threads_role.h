#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// The objects that threads with blocking calls have in common.
enum class ThreadsShare {
  client,   // One BlockingClient with one loop in the background and one connection.
  nothing,  // Each thread runs a loop of its own with a connection.
};

// Measures `cells`, whose mode is Mode::threads, as play_client() does.
bool play_threads(const RunOptions& options, const std::string& address, pid_t server, const std::vector<Cell>& cells,
                  ThreadsShare share, const EventWriter& events);

}  // namespace hawser::bench
