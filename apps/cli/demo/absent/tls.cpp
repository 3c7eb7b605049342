#include "cli/demo/protocols.h"

namespace hawser::cli {

Result<void> enable_tls(ServerOptions&, const DemoTls& tls) {
  if (tls.certificate_file.empty()) return {};
  return fail(ErrorCode::invalid_argument,
              "--tls-cert needs TLS, which this build does not have: install libssl-dev and build it again");
}

}  // namespace hawser::cli
