#pragma once

#include <string>

#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Clients that connect at once at most; a server that is slower lowers the rate.
inline constexpr unsigned connecting_clients_max = 500;

// Begins RunOptions::connecting_per_s clients a second until SIGTERM. Each connects to `address` over the transport of
// `cell`, makes one call and disconnects. Prints the achieved rate on stderr at the end. Returns the exit status.
int play_connecting(const RunOptions& options, const Cell& cell, const std::string& address);

}  // namespace hawser::bench
