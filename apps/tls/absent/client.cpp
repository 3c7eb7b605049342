#include "tls/client_options.h"

namespace hawser::programs {

std::shared_ptr<transport::ClientSecurity> make_client_security(const TlsClientGiven&, const std::string&) {
  throw CLI::ValidationError("--tls", "this build has no TLS: install libssl-dev and build it again");
}

}  // namespace hawser::programs
