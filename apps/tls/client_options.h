#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace hawser::transport {
class ClientSecurity;
}

namespace hawser::programs {

// Options for connecting within TLS.
struct TlsClientGiven {
  bool wanted = false;
  bool insecure = false;
  std::string ca_file = {};
  std::string certificate_file = {};
  std::string key_file = {};
  std::string host = {};
  std::string shared_key_name = {};
  std::string shared_key_file = {};
};

// Adds the options of TLS to `command`, a client. When the command line has been parsed, `security` is what they ask
// for, or null without them. `address` and `security` outlive the parsing. Options that contradict each other, and a
// build without TLS, are errors of the command line.
void add_tls_client_options(CLI::App& command, const std::string& address,
                            std::shared_ptr<transport::ClientSecurity>& security);

// "http", or "https" within TLS.
inline std::string scheme_of(const std::shared_ptr<transport::ClientSecurity>& security) {
  return security == nullptr ? "http" : "https";
}

// Throws CLI::ValidationError in a build without TLS. `address`: of the server, whose host the certificate must have
// unless `given` names another one.
std::shared_ptr<transport::ClientSecurity> make_client_security(const TlsClientGiven& given,
                                                                const std::string& address);

}  // namespace hawser::programs
