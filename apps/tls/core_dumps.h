#pragma once

namespace hawser::programs {

// Excludes the memory of OpenSSL from core dumps. Called first by a program. After a failure it writes a warning to
// stderr, which begins with the name of the program. In a build without TLS it does nothing.
void leave_secrets_out_of_core_dumps(const char* program);

}  // namespace hawser::programs
