#include "tls/client_options.h"

namespace hawser::programs {

void add_tls_client_options(CLI::App& command, const std::string& address,
                            std::shared_ptr<transport::ClientSecurity>& security) {
  const auto given = std::make_shared<TlsClientGiven>();
  CLI::Option* const ca = command.add_option("--tls-ca", given->ca_file,
                                             "Certificates of the issuers of the server's certificate, in PEM format. "
                                             "Absent: those of the system");
  CLI::Option* const certificate =
      command.add_option("--tls-cert", given->certificate_file, "Certificate of this client in PEM format");
  CLI::Option* const key = command.add_option("--tls-key", given->key_file,
                                              "Key of --tls-cert: a file in PEM format, or the URI of a key in a token "
                                              "(pkcs11:)");
  certificate->needs(key);
  key->needs(certificate);
  CLI::Option* const host = command.add_option("--tls-host", given->host,
                                               "Name or address that the server's certificate must have. Absent: the "
                                               "host of the server's address");
  CLI::Option* const insecure = command.add_flag("--tls-insecure", given->insecure,
                                                 "Accept every certificate: anybody in the network may be the peer");
  CLI::Option* const name =
      command.add_option("--tls-shared-key-name", given->shared_key_name, "Name of a key that both sides have");
  CLI::Option* const file =
      command.add_option("--tls-shared-key", given->shared_key_file, "File of this key: 64 hexadecimal digits or more");
  name->needs(file);
  file->needs(name);
  for (CLI::Option* const other : {ca, certificate, host, insecure}) file->excludes(other);
  insecure->excludes(ca);
  command.add_flag("--tls", given->wanted, "Connect within TLS; any other option of TLS implies it");
  command.parse_complete_callback([given, &address, &security] {
    const bool implied = given->insecure || !given->ca_file.empty() || !given->certificate_file.empty() ||
                         !given->host.empty() || !given->shared_key_file.empty();
    if (given->wanted || implied) security = make_client_security(*given, address);
  });
}

}  // namespace hawser::programs
