#include "hawser/grpc.h"

#include "cli/demo/protocols.h"
#include "hawser/grpc_health.h"
#include "hawser/grpc_reflection.h"

namespace hawser::cli {

void enable_grpc(Server& server) {
  server.enable(grpc());
  const GrpcHealth health(server);  // The service goes on without it.
  add_grpc_reflection(server);
}

}  // namespace hawser::cli
