#include "cli/call/server_name.h"

namespace hawser::cli {

void add_http_registries(std::vector<NamingScheme>&) {}

}  // namespace hawser::cli
