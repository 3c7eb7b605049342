#include "bench/load/protocols.h"

// For a library that was built without gRPC.
namespace hawser::bench {

std::optional<ClientOptions> grpc_options(const ClientOptions&) { return std::nullopt; }
void enable_grpc(Server&) {}

}  // namespace hawser::bench
