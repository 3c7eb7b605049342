#pragma once

#include "hawser/server.h"

namespace hawser::cli {

// Enable the protocol if this build has it.
void enable_grpc(Server& server);
void enable_baidu_std(Server& server);

}  // namespace hawser::cli
