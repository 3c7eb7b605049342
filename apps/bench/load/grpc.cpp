#include <utility>

#include "bench/load/protocols.h"
#include "bench/run/options.h"
#include "hawser/grpc_client.h"

namespace hawser::bench {
namespace {

// A payload and what protobuf adds to it.
constexpr std::size_t message_bytes_max = size_bytes_max + 4096;

}  // namespace

std::optional<ClientOptions> grpc_options(const ClientOptions& options) {
  GrpcClientOptions result;
  result.connect_timeout = options.connect_timeout;
  result.call_timeout = options.call_timeout;
  result.calls_in_flight_max = options.calls_in_flight_max;
  result.message_bytes_max = message_bytes_max;
  result.send_backlog_bytes_max = options.send_backlog_bytes_max;
  result.security = options.security;
  return grpc_client(std::move(result));
}

void enable_grpc(Server& server) {
  GrpcOptions options;
  options.message_bytes_max = message_bytes_max;
  options.calls_max = concurrency_max;
  server.enable(grpc(options));
}

}  // namespace hawser::bench
