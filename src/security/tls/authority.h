#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hawser/tls.h"
#include "security/tls/openssl.h"

namespace hawser::security::tls {

// A certificate to be issued. The default is a valid one of this machine.
struct Request {
  std::string subject = "localhost";
  std::string names = "DNS:localhost,IP:127.0.0.1,IP:::1";  // As OpenSSL's configuration writes them; empty: none.
  std::string usage = "serverAuth,clientAuth";              // Empty: no extended key usage.
  std::int64_t begins_in_seconds = -3600;
  std::int64_t ends_in_seconds = 24 * 3600;
  unsigned rsa_bits = 0;          // 0: EC with P-256.
  bool ed25519 = false;           // Instead of EC.
  std::size_t comment_bytes = 0;  // Makes the certificate that much longer.
  bool must_staple = false;       // Its server always sends an OCSP response.
};

// An issuer of certificates, for tests and measurements. It has a new key, which it does not store. Failures throw
// std::runtime_error.
class Authority {
 public:
  // Writes its files into `folder`, which exists, with names that begin with `name`.
  Authority(std::string folder, std::string name);

  std::string ca_file() const { return path(".ca.pem"); }
  // Writes a certificate and its key.
  TlsCertificate issue(const std::string& file, const Request& request = {});
  // Writes a list with these certificates that this authority has issued.
  std::string revoke(const std::vector<TlsCertificate>& revoked, std::int64_t ends_in_seconds = 24 * 3600);

  // Its own ones, for what it signs otherwise.
  X509* certificate() const noexcept { return certificate_.get(); }
  EVP_PKEY* key() const noexcept { return key_.get(); }

 private:
  std::string path(const std::string& suffix) const { return folder_ + "/" + name_ + suffix; }

  const std::string folder_;
  const std::string name_;
  KeyPtr key_;
  X509Ptr certificate_;
  long serial_ = 1;
};

}  // namespace hawser::security::tls
