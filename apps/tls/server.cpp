#include <string>

#include "hawser/tls.h"
#include "tls/server_options.h"

namespace hawser::programs {
namespace {

TlsProtection protection_of(const std::string& text) {
  if (text == "signed") return TlsProtection::signed_messages;
  if (text == "sealed") return TlsProtection::sealed_messages;
  return text == "encrypted" ? TlsProtection::encrypted_stream : TlsProtection::authenticated;
}

}  // namespace

Result<void> enable_tls(ServerOptions& options, const TlsServerGiven& given) {
  if (given.certificate_file.empty()) return {};
  TlsServerOptions tls;
  tls.certificates = {{given.certificate_file, given.key_file, given.ocsp_file}};
  tls.client_ca_file = given.client_ca_file;
  tls.policy = given.policy == "allowed" ? TlsPolicy::allowed : TlsPolicy::required;
  tls.protection = protection_of(given.protection);
  options.security = TlsServer(tls);
  return {};
}

}  // namespace hawser::programs
