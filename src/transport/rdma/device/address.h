#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// Chooses one of a port's addresses for a connection. It is `preferred` if that is among the suitable ones, for example
// the local address of the stream. The error names the addresses that the port has instead.
Result<GidEntry> choose_address(const RdmaOptions& options, std::span<const GidEntry> addresses,
                                const Gid& preferred = {});

// Returns the host of "host:port" or "[host]:port" as a GID. Nothing if it is not an address, or only leads to this
// host itself.
std::optional<Gid> gid_of(std::string_view local);

// Returns a route with the values that the options determine. The others depend on the peers.
QueuePairRoute route_with(const RdmaOptions& options) noexcept;

}  // namespace hawser::transport::rdma
