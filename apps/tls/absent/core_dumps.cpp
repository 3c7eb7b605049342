#include "tls/core_dumps.h"

namespace hawser::programs {

void leave_secrets_out_of_core_dumps(const char*) {}

}  // namespace hawser::programs
