#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "hawser/error.h"
#include "hawser/tls.h"
#include "security/tls/openssl.h"
#include "security/tls/signing_key.h"

// The private key of a certificate: in a file, in a token, or a function.
namespace hawser::security::tls {

// True if another component signs, so that the handshakes need threads.
bool signs_elsewhere(const TlsCertificate& files) noexcept;
// An error if handshakes with `files` would run on the loop, and with them signatures. `options` is the name of the
// options, such as "TlsServerOptions".
Result<void> check_threads(const TlsCertificate& files, unsigned handshake_threads, const std::string& options);

// Opens the key of `certificate`, which is the first one of files.certificate_file. Makes a trial signature with a key
// that is not in a file, unless this thread runs a loop. Whether a key in a file belongs to the certificate is not
// checked. `stop`: for a function that makes the trial signature.
Result<KeyPtr> open_private_key(const TlsCertificate& files, const X509* certificate,
                                std::shared_ptr<SigningCounters> counters, const std::stop_token& stop = {});

}  // namespace hawser::security::tls
