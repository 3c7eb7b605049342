#include "hawser/brpc.h"

#include "cli/demo/protocols.h"

namespace hawser::cli {

void enable_baidu_std(Server& server) { server.enable(baidu_std()); }
std::optional<ClientOptions> demo_baidu_std_options() { return baidu_std_client(); }

}  // namespace hawser::cli
