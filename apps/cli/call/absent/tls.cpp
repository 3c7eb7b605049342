#include "cli/call/tls.h"

namespace hawser::cli {

std::shared_ptr<transport::ClientSecurity> make_client_security(const TlsGiven&, const std::string&) {
  throw CLI::ValidationError("--tls", "this build has no TLS: install libssl-dev and build it again");
}

}  // namespace hawser::cli
