#pragma once

#include <cstdint>

namespace hawser {

// The values that a server counts. `Number` is std::uint64_t in ServerCounters; each loop counts in a type of its own.
template <class Number>
struct ServerCountersOf {
  Number connections_accepted = {};
  Number connections_open = {};
  Number connections_refused = {};
  Number handshakes_failed = {};
  Number calls = {};
  Number calls_in_flight = {};
  Number calls_refused = {};  // Reasons: overloaded, unknown method, wrong signature.
  Number protocol_errors = {};
  // Requests and stream items that exceeded receive_bytes_max or a connection's share.
  Number memory_refusals = {};
  Number slow_peers = {};           // Connections that receive_rate_min ended.
  Number receive_bytes = {};        // Current use of receive_bytes_max, over all loops.
  Number transports_declined = {};  // Transports that a client offered and that did not carry its connection.
};

// Counters since the start, summed over all loops, for tests and monitoring. Each value is correct, but the values are
// not read at one instant and may not agree with each other.
using ServerCounters = ServerCountersOf<std::uint64_t>;

}  // namespace hawser
