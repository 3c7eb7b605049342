#include "tls/core_dumps.h"

#include <cstdio>

#include "hawser/tls.h"

namespace hawser::programs {

void leave_secrets_out_of_core_dumps(const char* program) {
  const Result<void> excluded = exclude_tls_memory_from_core_dumps();
  if (!excluded) std::fprintf(stderr, "%s: warning: %s\n", program, excluded.error().text.c_str());
}

}  // namespace hawser::programs
