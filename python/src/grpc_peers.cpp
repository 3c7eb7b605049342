// With the component grpc.
#include "grpc_peers.h"

#include <utility>

#include "hawser/grpc.h"
#include "hawser/grpc_client.h"

namespace hawser::python {

ClientOptions grpc_client_options(const ClientOptions& own) {
  GrpcClientOptions options;
  options.connect_timeout = own.connect_timeout;
  options.call_timeout = own.call_timeout;
  options.calls_in_flight_max = own.calls_in_flight_max;
  options.message_bytes_max = own.message_bytes_max;
  options.security = own.security;
  return grpc_client(std::move(options));
}

void serve_grpc(Server& server, std::size_t message_bytes_max) {
  GrpcOptions options;
  options.message_bytes_max = message_bytes_max;
  server.enable(hawser::grpc(std::move(options)));
}

}  // namespace hawser::python
