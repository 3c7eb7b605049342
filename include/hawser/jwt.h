#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/interceptor.h"
#include "hawser/task.h"

// Authentication by signed tokens: JSON Web Tokens (RFC 7519) with the keys of a JWK set (RFC 7517). Component
// hawser::tls. docs/security.md, "Signed tokens".
namespace hawser {

struct JwtOptions {
  // A JWK set: {"keys": [...]}. Keys of the kinds "oct" (HS256, 32 bytes at least), "RSA" (RS256, 2048 to 8192 bits)
  // and "EC" with P-256 (ES256) are used; keys for encryption and for other algorithms are not. At most 64 keys.
  std::string keys_file = {};
  std::string issuer = {};                                     // The claim "iss" of every token.
  std::string audience = {};                                   // The claim "aud" is or contains it.
  std::chrono::seconds clock_skew = std::chrono::seconds(60);  // Tolerance for "exp" and "nbf".
  // The SPIFFE trust domain whose ids the issuer may give, such as "example.org": "sub" of a token that is a valid id
  // of this domain becomes Identity::spiffe_id. Empty: no token has a SPIFFE id.
  std::string trust_domain = {};
  bool required = false;  // A call without a token is refused. Otherwise it keeps the identity of its connection.
  bool keep = false;      // The handler sees the token among the metadata.
  std::size_t token_bytes_max = 8 * 1024;    // Longer tokens are refused before they are decoded.
  std::function<std::int64_t()> clock = {};  // Seconds since 1970. Empty: the system's clock. Called by many threads.
  // Calls that this interceptor refuses are logged by the component "audit", as those that Authorization refuses.
  bool log_refused = true;
  std::uint32_t log_lines_per_second_max = 20;
};

// Verifies signed tokens. The interceptor for Server::use() sets the identity of each call with a token, whose kind is
// `token`: "sub" is its subject, "iss" its issuer, and all claims are `claims`. A call with a token that is not
// valid is refused with unauthenticated and the reason, which never quotes the token. Copies share their keys.
// Thread-safe.
//   hawser::Result<hawser::JwtVerifier> tokens = hawser::JwtVerifier::load({.keys_file = "jwks.json",
//                                                                           .issuer = "https://login.example.org",
//                                                                           .audience = "storage"});
//   server.use(*tokens);
//   server.use(hawser::Authorization().allow("storage.*", hawser::claim("groups", "backup")));
class JwtVerifier {
 public:
  // Reads the keys. Fails with invalid_argument or limit_exceeded if the file cannot be used, or if issuer or audience
  // is empty. Blocks for the time of the reading.
  static Result<JwtVerifier> load(JwtOptions options);
  // Reads the file again. After an error the old keys stay. Blocks for the time of the reading.
  Result<void> reload();

  // Returns the identity that the token proves. Fails with unauthenticated. A signature of RSA or EC takes some 10 us.
  Result<Identity> verify(std::string_view token) const;

  // The interceptor.
  Task<Result<void>> operator()(IncomingCall& call, Next next) const;

 private:
  struct State;
  explicit JwtVerifier(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace hawser
