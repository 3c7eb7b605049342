#include "bench/load/protocols.h"
#include "hawser/brpc.h"

namespace hawser::bench {

std::optional<ClientOptions> baidu_std_options(const ClientOptions& options) {
  return baidu_std_client({.client = options});
}
void enable_baidu_std(Server& server) { server.enable(baidu_std()); }

}  // namespace hawser::bench
