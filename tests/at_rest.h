#pragma once

#include <cstdint>
#include <memory>
#include <ostream>

#include "tests/testing.h"

// Tests end with servers at rest: nothing of the calls and connections of the test is left.
namespace hawser::testing_tools {

struct PrintedCounters {
  const Server& server;
};
inline std::ostream& operator<<(std::ostream& out, const PrintedCounters& printed) {
  const ServerCounters counters = printed.server.counters();
  return out << "at the end of the test the server has " << counters.connections_open << " connections, "
             << counters.calls_in_flight << " calls, and " << counters.receive_bytes << " bytes of received data";
}

// Returns whether the server has this number of connections, no call, and no memory for received data. Any thread.
inline bool at_rest(const Server& server, std::uint64_t connections = 0) {
  const ServerCounters counters = server.counters();
  return counters.connections_open == connections && counters.calls_in_flight == 0 && counters.receive_bytes == 0;
}

// Waits on a thread without a loop until the server is at rest.
inline void expect_rest(const Server& server, std::uint64_t connections = 0) {
  EXPECT_TRUE(soon([&] { return at_rest(server, connections); })) << PrintedCounters{server};
}

// Does the same on a loop that serves the server.
inline Task<void> reach_rest(Loop& loop, const Server& server, std::uint64_t connections = 0) {
  const bool rests = co_await eventually(loop, [&] { return at_rest(server, connections); });
  EXPECT_TRUE(rests) << PrintedCounters{server};
}

// Deletes a server that has threads of its own. Its clients must have closed their connections.
struct DeleteAtRest {
  void operator()(Server* server) const {
    expect_rest(*server);
    delete server;
  }
};
using RestingServer = std::unique_ptr<Server, DeleteAtRest>;

}  // namespace hawser::testing_tools
