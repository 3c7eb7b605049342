#include "cli/call/server_name.h"

namespace hawser::cli {

void add_kubernetes_names(std::vector<NamingScheme>&) {}

}  // namespace hawser::cli
