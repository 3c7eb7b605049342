#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hawser/transports.h"

// The values of `--transport` as options of servers and clients.
namespace hawser::bench {

// "tcp", "unix" and "tls" (TLS over TCP) are byte streams, which carry the calls themselves; the others are used beside
// a TCP stream. "auto" is the first in the order of preference that both sides can use.
std::span<const std::string_view> transport_names() noexcept;
bool is_transport(std::string_view name) noexcept;

TransportOptions server_transports(std::string_view name);
// Requires the transport `name`: connecting fails with the reason if it is not available.
TransportOptions client_transports(std::string_view name);

// Returns the address at which a server for clients of this machine listens.
std::string listen_address(std::string_view name);

}  // namespace hawser::bench
