#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/call/peer.h"
#include "hawser/http_client.h"
#include "hawser/naming.h"
#include "hawser/naming_routes.h"

// Names of docs/clusters.md in place of the address of a server.
namespace hawser::cli {

inline constexpr const char* address_help =
    "Server: HOST:PORT, unix:/path or unix:@name; or a name: list:, file:, dns:, consul:, etcd:, kubernetes: or xds:";

// Adds the schemes "consul" and "kubernetes" if this build has them.
void add_http_registries(std::vector<NamingScheme>& schemes);

// The other schemes that this build has.
std::vector<NamingScheme> naming_schemes();

// For people: the endpoints of which clusters are not used. Empty: the name has one cluster. `routes` may be null.
std::string note_on_routes(std::string_view name, const NamingRoutes* routes);

// The addresses of the endpoints of a name, by priority; the address itself if `given` is one. On a loop. Fails if the
// name has no list within `timeout`. With `notes`, note_on_routes() goes to stderr.
Task<Result<std::vector<std::string>>> addresses_of(std::string given, Duration timeout, bool notes = true);

// Connects to an endpoint of options.address: to the one of number `first`, or else to the next ones, at most 8.
Task<Result<std::unique_ptr<CallPeer>>> connect_peer(PeerOptions options, std::size_t first = 0);

// Sends `request` to the first one of `addresses`, or else to the next ones, at most 8, while it has not been executed.
// Sets HttpClientRequest::address.
Task<Result<HttpClientResponse>> send_to_any(HttpClient& client, const std::vector<std::string>& addresses,
                                             HttpClientRequest& request);

}  // namespace hawser::cli
