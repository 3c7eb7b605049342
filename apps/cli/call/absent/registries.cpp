#include "cli/call/server_name.h"

namespace hawser::cli {

std::vector<NamingScheme> naming_schemes() { return default_naming(); }

}  // namespace hawser::cli
