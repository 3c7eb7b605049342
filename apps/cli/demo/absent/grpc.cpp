#include "cli/demo/protocols.h"

// A build without the protocol.
namespace hawser::cli {

void enable_grpc(Server&) {}
std::optional<ClientOptions> demo_grpc_options() { return std::nullopt; }

}  // namespace hawser::cli
