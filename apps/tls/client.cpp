#include "hawser/tls.h"
#include "tls/client_options.h"

namespace hawser::programs {
namespace {

// Returns the host of "host:port" or "[address]:port". Empty for a Unix socket.
std::string host_of(const std::string& address) {
  if (address.starts_with("unix:")) return {};
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

std::shared_ptr<transport::ClientSecurity> make_client_security(const TlsClientGiven& given,
                                                                const std::string& address) {
  TlsClientOptions options;
  options.ca_file = given.ca_file;
  options.certificate = {given.certificate_file, given.key_file};
  options.shared_key = {given.shared_key_name, given.shared_key_file};
  options.accept_any_server = given.insecure;
  options.server_name = given.host.empty() ? host_of(address) : given.host;
  return TlsClient(options);
}

}  // namespace hawser::programs
