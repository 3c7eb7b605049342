#include "hawser/grpc.h"

#include "cli/demo/protocols.h"

namespace hawser::cli {

void enable_grpc(Server& server) { server.enable(grpc()); }

}  // namespace hawser::cli
