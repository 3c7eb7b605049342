#pragma once

#include <cstddef>

#include "hawser/client.h"
#include "hawser/server.h"

// Peers that speak gRPC. Without the component grpc, both functions throw NotImplementedError.
namespace hawser::python {

// The options of a client for servers of gRPC that has the limits, times and security of `own`.
ClientOptions grpc_client_options(const ClientOptions& own);
// Serves clients of gRPC on the server's port.
void serve_grpc(Server& server, std::size_t message_bytes_max);

}  // namespace hawser::python
