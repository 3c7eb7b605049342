#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// A system to be measured, as the functions of its server process and its client process. Both write events (events.h)
// to a descriptor and return the exit status of their process.
struct System {
  std::string name;  // Name in the column "system".

  // Serves cells with the transport and the way of waiting of `cell` until SIGTERM. Reports its address: Listening.
  std::function<int(const RunOptions& options, const Cell& cell, int descriptor)> serve;
  // Measures cells that share the transport and the way of waiting. Reports Connected, then CellBegun and CellResult
  // for each cell. Cells in the mode `threads` are measured by themselves. `server` is the process that serves at
  // `address`, or -1 if it is not on this machine.
  std::function<int(const RunOptions& options, const std::string& address, pid_t server, const std::vector<Cell>& cells,
                    int descriptor)>
      measure;
};

System hawser_system();
// Hawser with a loop and a connection for each thread, in place of threads that share a BlockingClient.
System loops_system();
// Returns why loops can't be compared with these options, or an empty string.
std::string missing_loops(const RunOptions& options);
// Hawser with RunOptions::observed.
System observed_system();
// The same calls on bare sockets or bare shared memory.
System baseline_system();
// Returns why a transport of the options has no baseline, or an empty string.
std::string missing_baseline(const RunOptions& options);
// ucx_perftest of ucx-utils: round trips with one message in flight, else messages in one direction.
System ucx_perftest_system();
// Returns why ucx_perftest can't run with these options, or an empty string.
std::string missing_ucx_perftest(const RunOptions& options);
// A program of apps/bench/peers/, which accepts the options that peer_main.cpp reads.
System peer_system(const std::string& peer);
// Returns how to build a peer whose program is missing, why it has no such transport, or an empty string.
std::string missing_peer(const std::string& peer, const RunOptions& options);
// gRPC C++ beside Hawser on one connection: its client calls Hawser's server.
System grpc_client_system();
// Hawser's client calls gRPC C++'s server.
System grpc_server_system();
// Returns why these can't be compared with these options, or an empty string.
std::string missing_grpc_half(const RunOptions& options);

}  // namespace hawser::bench
