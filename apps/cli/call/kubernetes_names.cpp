#include "cli/call/server_name.h"
#include "hawser/kubernetes.h"

namespace hawser::cli {

void add_kubernetes_names(std::vector<NamingScheme>& schemes) { schemes.push_back(kubernetes_naming()); }

}  // namespace hawser::cli
