#include "bench/load/protocols.h"

// For a library that was built without gRPC.
namespace hawser::bench {

std::unique_ptr<ProtocolCaller> make_grpc_caller(Loop&, const ClientOptions&) { return nullptr; }
void enable_grpc(Server&) {}

}  // namespace hawser::bench
