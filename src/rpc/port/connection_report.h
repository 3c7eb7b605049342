#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/time.h"
#include "transport/common/link_facts.h"

namespace hawser::rpc {

// A connection of a server at one time, for pages.
struct ConnectionReport {
  std::size_t loop = 0;
  std::size_t slot = 0;
  std::uint64_t serial = 0;  // Different for each connection of a slot.
  std::string peer;
  std::string identity;               // Identity::text().
  std::string_view protocol;          // Such as "hawser" or "http". Lives as long as the server.
  std::string transport;              // Such as "tcp" or "rdma".
  std::string_view protection;        // "authenticated", "encrypted" or empty. A literal.
  std::vector<std::string> declined;  // "name: reason" of each transport that does not carry the connection.
  Duration age{};
  std::uint64_t received_bytes = 0;  // In units of the transport.
  std::uint64_t sent_bytes = 0;
  std::uint64_t calls = 0;  // Calls of methods that began.
  // Since the previous report, if that is a second ago or longer, else since the connection opened.
  double received_rate = 0;
  double sent_rate = 0;
  double calls_rate = 0;
  std::size_t active = 0;                         // Calls in flight.
  std::size_t backlog = 0;                        // Bytes that wait to be sent.
  std::size_t memory_bytes = 0;                   // Received data that is kept.
  bool paused = false;                            // Nothing is received for the time being.
  std::optional<transport::LinkFacts> link = {};  // Empty if the transport measures nothing.
  std::string details = {};                       // Values that only its transport or protocol has, such as credits.
};

}  // namespace hawser::rpc
