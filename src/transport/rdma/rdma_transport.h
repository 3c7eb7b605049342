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

// RDMA verbs beside the stream, as `options` want it: docs/transports/rdma.md. Opens nothing before attach().
std::shared_ptr<Transport> make_rdma_transport(const RdmaOptions& options);
// Over other devices than this machine's, such as simulated ones.
std::shared_ptr<Transport> make_rdma_transport(const RdmaOptions& options, std::shared_ptr<rdma::Verbs> verbs);

// Names the option that is out of its bounds, and the bounds.
Result<void> check_rdma_options(const RdmaOptions& options);
// Registered memory that a connection has to itself, at most and when idle.
std::size_t rdma_connection_bytes_max(const RdmaOptions& options) noexcept;
std::size_t rdma_idle_connection_bytes(const RdmaOptions& options) noexcept;

}  // namespace hawser::transport
