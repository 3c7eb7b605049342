#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Something to measure: what its server's and its client's process do. Both tell of themselves by events (events.h) on
// a descriptor, and give the exit status of their process.
struct System {
  std::string name;  // As in the column "system".

  // Serves cells like this one, in transport and way of waiting, until SIGTERM, and says where: Listening.
  std::function<int(const Options& options, const Cell& cell, int descriptor)> serve;
  // Measures cells that share their transport and their way of waiting, and says so: Connected, then CellBegun and
  // CellResult for each. `server` is the process that serves at `address`, or -1 where it is out of sight.
  std::function<int(const Options& options, const std::string& address, pid_t server, const std::vector<Cell>& cells,
                    int descriptor)>
      measure;
};

System hawser_system();
// The same calls on bare sockets, or through bare shared memory.
System baseline_system();
// Why there is no baseline over a transport among the options, or nothing.
std::string missing_baseline(const Options& options);
// ucx_perftest of ucx-utils: round trips with one message in flight, else messages in one direction.
System ucx_perftest_system();
// Why it can't be run with these options, or nothing.
std::string missing_ucx_perftest(const Options& options);
// A program of apps/bench/peers/, which has the options that peer_options.h reads.
System peer_system(const std::string& peer);
// What to do about a peer whose program is not there, or nothing.
std::string missing_peer(const std::string& peer);

}  // namespace hawser::bench
