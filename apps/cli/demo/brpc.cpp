#include "hawser/brpc.h"

#include "cli/demo/protocols.h"

namespace hawser::cli {

void enable_baidu_std(Server& server) { server.enable(baidu_std()); }

}  // namespace hawser::cli
