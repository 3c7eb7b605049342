#include "cli/call/server_name.h"
#include "hawser/consul.h"
#include "hawser/kubernetes.h"

namespace hawser::cli {

void add_http_registries(std::vector<NamingScheme>& schemes) {
  schemes.push_back(consul_naming());
  schemes.push_back(kubernetes_naming());
}

}  // namespace hawser::cli
