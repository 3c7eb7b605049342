#pragma once

#include "hawser/server.h"

namespace hawser {

// The service grpc.reflection.v1.ServerReflection, and its older name v1alpha, for grpcurl and similar programs. It
// lists all services that gRPC serves, and describes those that are defined in .proto files. Link hawser::grpc.
//
//   hawser::add_grpc_reflection(server);
//
// Call it before the server starts; services may be registered before and afterwards.
void add_grpc_reflection(Server& server);

}  // namespace hawser
