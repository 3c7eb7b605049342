#pragma once

#include <memory>
#include <string>

#include "hawser/server.h"

namespace hawser {

// The service grpc.health.v1.Health with Check, Watch and List, for load balancers, orchestrators and clients of gRPC.
// The empty name stands for the whole server, which is SERVING at first. Link hawser::grpc.
//
//   hawser::GrpcHealth health(server);
//   health.set("package.Service", true);
class GrpcHealth {
 public:
  // Registers the service. Call it before the server starts.
  explicit GrpcHealth(Server& server);
  GrpcHealth(const GrpcHealth&) = delete;
  GrpcHealth& operator=(const GrpcHealth&) = delete;
  // The service goes on with the last values until the server is destroyed.
  ~GrpcHealth();

  // Sets what Check answers for `service`, and notifies those who watch it. Any thread.
  void set(std::string service, bool serving);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace hawser
