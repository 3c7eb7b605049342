#pragma once

#include <span>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "transport/rdma/verbs.h"

namespace hawser::transport::rdma {

// Of one port's addresses, the one that a connection uses. The error names what the port has instead.
Result<GidEntry> choose_address(const RdmaOptions& options, std::span<const GidEntry> addresses);

// What the options say of the way there; the rest is the peers'.
QueuePairRoute route_with(const RdmaOptions& options) noexcept;

}  // namespace hawser::transport::rdma
