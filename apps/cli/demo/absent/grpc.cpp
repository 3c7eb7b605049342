#include "cli/demo/protocols.h"

// A build without the protocol.
namespace hawser::cli {

void enable_grpc(Server&) {}

}  // namespace hawser::cli
