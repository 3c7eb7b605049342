#pragma once

#include <google/protobuf/service.h>

#include "hawser/protobuf_controller.h"
#include "hawser/server.h"

// Services of `option cc_generic_services = true`: implementations of google::protobuf::Service, as bRPC has them.
namespace hawser::pb {

struct GenericServiceOptions {
  // Calls CallMethod() on a thread of the loop's offload pool, because such services often block. False: on the loop,
  // where a method must not block.
  bool offload = true;
};

// Registers all methods of `service`, which must outlive the server, under `package.Service/Method`. A method may call
// its `done` later and on any thread. It receives a Controller. The rules are those of Server::register_handler().
void add_service(Server& server, google::protobuf::Service* service, GenericServiceOptions options = {});

}  // namespace hawser::pb
