#include "cli/demo/protocols.h"

// A build without the protocol.
namespace hawser::cli {

void enable_grpc(Server&) {}
std::unique_ptr<DemoCaller> make_grpc_caller(Duration) { return nullptr; }

}  // namespace hawser::cli
