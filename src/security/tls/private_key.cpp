#include "security/tls/private_key.h"

#include <openssl/x509.h>

#include <string>
#include <utility>

#include "base/try.h"
#include "hawser/loop.h"
#include "security/tls/certificate.h"
#include "security/tls/pkcs11.h"

namespace hawser::security::tls {

bool signs_elsewhere(const TlsCertificate& files) noexcept {
  return files.sign != nullptr || is_pkcs11(files.key_file);
}

Result<void> check_threads(const TlsCertificate& files, unsigned handshake_threads, const std::string& options) {
  if (handshake_threads != 0 || !signs_elsewhere(files)) return {};
  return fail(ErrorCode::invalid_argument,
              options + "::handshake_threads is 0, so that the key of " + files.certificate_file +
                  " would sign on the loops, and may block them: set it to 1 or more, or use a key in a file");
}

Result<KeyPtr> open_private_key(const TlsCertificate& files, const X509* certificate,
                                std::shared_ptr<SigningCounters> counters, const std::stop_token& stop) {
  if (!signs_elsewhere(files)) {
    const Result<PemText> pem = read_file(files.key_file, stop);
    return pem ? parse_key(*pem, files.key_file) : fail(pem.error());
  }
  if (files.sign != nullptr && !files.key_file.empty()) {
    return fail(ErrorCode::invalid_argument,
                "the certificate in " + files.certificate_file +
                    " has two keys: set either TlsCertificate::key_file or TlsCertificate::sign");
  }
  TlsSign sign = files.sign;
  std::string name = "the function TlsCertificate::sign of " + files.certificate_file;
  if (sign == nullptr) {
    TRY(Pkcs11Key&& opened, open_pkcs11_key(files.key_file));
    sign = std::move(opened.sign);
    name = opened.name;
  }
  Result<KeyPtr> key =
      make_signing_key(X509_get0_pubkey(certificate), std::move(sign), std::move(name), std::move(counters));
  if (!key || Loop::current() != nullptr) return key;
  if (Result<void> tried = try_signing_key(key->get(), stop); !tried) {
    tried.error().text = "the certificate in " + files.certificate_file + " has no usable key: " + tried.error().text;
    return fail(std::move(tried.error()));
  }
  return key;
}

}  // namespace hawser::security::tls
