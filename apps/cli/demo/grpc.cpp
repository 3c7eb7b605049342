#include "hawser/grpc.h"

#include "cli/demo/protocols.h"
#include "hawser/grpc_client.h"
#include "hawser/grpc_health.h"
#include "hawser/grpc_reflection.h"

namespace hawser::cli {

void enable_grpc(Server& server) {
  server.enable(grpc());
  const GrpcHealth health(server);  // The service goes on without it.
  add_grpc_reflection(server);
}
std::optional<ClientOptions> demo_grpc_options() { return grpc_client(); }

}  // namespace hawser::cli
