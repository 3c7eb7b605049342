#pragma once

#include <string>
#include <utility>

#include "hawser/health.h"
#include "hawser/server.h"

namespace hawser {

// The service grpc.health.v1.Health with Check, Watch and List, for load balancers, orchestrators and clients of gRPC.
// It reports the ServerHealth of the server (hawser/health.h). Link hawser::grpc.
//
//   hawser::GrpcHealth health(server);
//   health.set("package.Service", true);
class GrpcHealth {
 public:
  // Registers the service, which the server owns. Call it before the server starts.
  explicit GrpcHealth(Server& server);
  GrpcHealth(const GrpcHealth&) = delete;
  GrpcHealth& operator=(const GrpcHealth&) = delete;
  ~GrpcHealth() = default;

  // ServerHealth::set().
  void set(std::string service, bool serving) { health_.set(std::move(service), serving); }

 private:
  const ServerHealth health_;
};

}  // namespace hawser
