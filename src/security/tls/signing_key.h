#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "hawser/error.h"
#include "hawser/tls.h"
#include "security/tls/openssl.h"

// Private keys that are functions. docs/decisions/0050.
namespace hawser::security::tls {

struct SigningCounters {
  std::atomic<std::uint64_t> made{0};
  std::atomic<std::uint64_t> failed{0};
};

// Collects the reason of a signature that failed on this thread, while OpenSSL calls the function of a key.
class SigningScope {
 public:
  // `stop`: given to the function.
  explicit SigningScope(std::stop_token stop);
  SigningScope(const SigningScope&) = delete;
  SigningScope& operator=(const SigningScope&) = delete;
  ~SigningScope();
  static SigningScope* current() noexcept;

  const std::stop_token& stop() const noexcept { return stop_; }
  // Empty: no signature has failed.
  const std::string& reason() const noexcept { return reason_; }
  void set_reason(std::string reason) { reason_ = std::move(reason); }

 private:
  const std::stop_token stop_;
  SigningScope* const outer_;  // The one of this thread before.
  std::string reason_;
};

// Returns a private key that signs with `sign` and whose public key is `key`, of a certificate. `name` is for errors,
// such as "the key of server.pem". Each signature is verified with the public key. The key may be used by several
// threads. It refuses to sign on the thread of a loop.
Result<KeyPtr> make_signing_key(EVP_PKEY* key, TlsSign sign, std::string name,
                                std::shared_ptr<SigningCounters> counters);

// Signs a fixed text with `key`, of make_signing_key(). The function gets `stop`. Returns the reason if that fails.
Result<void> try_signing_key(EVP_PKEY* key, std::stop_token stop);

}  // namespace hawser::security::tls
