#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hawser/transports.h"

// What `--transport` names, as options of servers and clients.
namespace hawser::bench {

// "tcp" and "unix" are streams, which carry the calls themselves; the others go beside a TCP stream. "auto" is the best
// of all that both sides can have.
std::span<const std::string_view> transport_names() noexcept;
bool is_transport(std::string_view name) noexcept;

TransportOptions server_transports(std::string_view name);
// Nothing but `name`: where it can't be had, connecting fails with the reason.
TransportOptions client_transports(std::string_view name);

// Where a server of this machine alone listens.
std::string listen_address(std::string_view name);

}  // namespace hawser::bench
