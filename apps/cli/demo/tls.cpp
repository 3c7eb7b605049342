#include "hawser/tls.h"

#include "cli/demo/protocols.h"

namespace hawser::cli {

Result<void> enable_tls(ServerOptions& options, const DemoTls& tls) {
  if (tls.certificate_file.empty()) return {};
  TlsServerOptions given;
  given.certificates = {{tls.certificate_file, tls.key_file, tls.ocsp_file}};
  given.client_ca_file = tls.client_ca_file;
  given.policy = tls.policy == "allowed" ? TlsPolicy::allowed : TlsPolicy::required;
  options.security = TlsServer(given);
  return {};
}

}  // namespace hawser::cli
