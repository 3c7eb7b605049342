#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hawser/memory.h"

// Counters of RDMA devices; not part of hawser.h. Registered memory and access to a peer's memory, over RDMA and every
// other transport, are in hawser/memory.h.
namespace hawser {

// Memory use of one RDMA device of a client or server. Clients and servers of a process with equal RdmaOptions share
// it. If RegisteredBuffers are registered with UCX, UCX counts as a device of the name "ucx" with the figures of these
// buffers only.
struct RdmaCounters {
  std::string device;
  std::size_t registered_bytes = 0;  // For connections and payloads. At most RdmaOptions::memory_bytes_max.
  std::size_t used_bytes = 0;        // Part of registered_bytes that is in use.
  std::size_t used_bytes_max = 0;    // Largest value of used_bytes so far.
  // Number of times that memory_bytes_max was reached: connections refused, payloads copied.
  std::uint64_t refused = 0;
  std::size_t connections = 0;        // Queue pairs.
  std::size_t connection_bytes = 0;   // Posted by each idle connection.
  std::size_t buffer_bytes = 0;       // Size of all RegisteredBuffers.
  std::uint64_t buffer_sends = 0;     // Payloads that the peer could read directly from a RegisteredBuffer.
  std::uint64_t buffer_receives = 0;  // Payloads that were read directly into a RegisteredBuffer.
};

// One element per device in use; empty if there is none. Any thread, while the client or server exists.
std::vector<RdmaCounters> rdma_counters(const Client& client);
std::vector<RdmaCounters> rdma_counters(const Server& server);

}  // namespace hawser
