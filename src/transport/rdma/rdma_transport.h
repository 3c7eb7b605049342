#pragma once

#include <cstddef>
#include <memory>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "hawser/transport/transport.h"

namespace hawser::transport {

namespace rdma {
class Verbs;
}

// Returns a transport over RDMA verbs with these options: docs/transports/rdma.md. It opens no device before attach().
std::shared_ptr<Transport> make_rdma_transport(const RdmaOptions& options);
// Uses the devices of `verbs` instead of this machine's, for example simulated ones.
std::shared_ptr<Transport> make_rdma_transport(const RdmaOptions& options, std::shared_ptr<rdma::Verbs> verbs);

// The error names the option that is out of bounds, and the bounds.
Result<void> check_rdma_options(const RdmaOptions& options);
// Upper limit of the registered memory that one connection occupies while it is idle.
std::size_t rdma_connection_bytes_max(const RdmaOptions& options) noexcept;
std::size_t rdma_idle_connection_bytes(const RdmaOptions& options) noexcept;

}  // namespace hawser::transport
