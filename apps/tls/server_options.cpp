#include "tls/server_options.h"

namespace hawser::programs {

void add_tls_server_options(CLI::App& command, TlsServerGiven& given) {
  CLI::Option* const certificate = command.add_option(
      "--tls-cert", given.certificate_file, "Certificate in PEM format, with those of its issuers: speaks TLS");
  CLI::Option* const key = command.add_option("--tls-key", given.key_file,
                                              "Key of --tls-cert: a file in PEM format, or the URI of a key in a token "
                                              "(pkcs11:)");
  certificate->needs(key);
  key->needs(certificate);
  command
      .add_option("--tls-client-ca", given.client_ca_file,
                  "Certificates of issuers: clients must have a certificate of one")
      ->needs(certificate);
  command.add_option("--tls-ocsp", given.ocsp_file, "OCSP response for --tls-cert in DER format")->needs(certificate);
  command.add_option("--tls", given.policy, "Whether plain text is refused: required or allowed")
      ->capture_default_str()
      ->check(CLI::IsMember({"required", "allowed"}))
      ->needs(certificate);
  command
      .add_option(
          "--tls-protection", given.protection,
          "Least protection of messages beside the encrypted stream: authenticated, signed, sealed, or encrypted "
          "(the encrypted stream only)")
      ->capture_default_str()
      ->check(CLI::IsMember({"authenticated", "signed", "sealed", "encrypted"}))
      ->needs(certificate);
}

}  // namespace hawser::programs
