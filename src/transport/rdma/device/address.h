#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// Of one port's addresses, the one that a connection uses. The error names what the port has instead.
// If it is among those that will do, `preferred`, such as the address that the stream has here.
Result<GidEntry> choose_address(const RdmaOptions& options, std::span<const GidEntry> addresses,
                                const Gid& preferred = {});

// The host of "host:port", or of "[host]:port", as a GID; nothing if that is no address, or leads nowhere but to this
// host.
std::optional<Gid> gid_of(std::string_view local);

// What the options say of the way there; the rest is the peers'.
QueuePairRoute route_with(const RdmaOptions& options) noexcept;

}  // namespace hawser::transport::rdma
