#include "tls/server_options.h"

namespace hawser::programs {

Result<void> enable_tls(ServerOptions&, const TlsServerGiven& given) {
  if (given.certificate_file.empty()) return {};
  return fail(ErrorCode::invalid_argument,
              "--tls-cert needs TLS, which this build does not have: install libssl-dev and build it again");
}

}  // namespace hawser::programs
