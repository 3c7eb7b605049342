#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/interceptor.h"
#include "hawser/task.h"

// Who may call which method, and who a caller is by the token that it sends. Interceptors for Server::use().
// docs/interceptors.md, "Authentication and authorisation".
namespace hawser {

// A condition that an identity fulfils. Called on the loops of the server, on several at once; must not block.
using Who = std::function<bool(const Identity&)>;

Who anyone();         // Every caller, also one that has proved nothing.
Who authenticated();  // Every caller that has proved who it is.
// The SPIFFE id of a certificate or token: valid_spiffe_id(). An id that ends with "/*" matches all longer ids with
// that beginning. Throws std::invalid_argument if the id is not valid. JwtOptions::trust_domain permits tokens one.
Who spiffe(std::string id);
// A caller whose proof has that subject (Identity::subject). Each condition is true for one kind of proof only, since
// whoever issues one kind may give a name that means somebody else in another kind. With `issuer`, only a proof of that
// issuer counts (Identity::issuer); without it, of each one that the server trusts. Throw std::invalid_argument if the
// name is empty, because that is the subject of proofs without a name.
Who certificate_subject(std::string name, std::string issuer = {});  // A distinguished name, such as "CN=storage-7".
Who token_subject(std::string name, std::string issuer = {});        // "sub" of a token, or BearerTokens::add().
Who shared_key(std::string name);                                    // The name of a key of TlsServerOptions.
Who uid(std::uint32_t user);                     // The user of a process at a Unix socket or shared memory.
Who gid(std::uint32_t group);                    // Its group.
Who claim(std::string name, std::string value);  // A claim of a token.

// True if `id` is a SPIFFE id, such as "spiffe://example.org/storage" (SPIFFE-ID, 2): at most 2048 bytes; a trust
// domain of 1 to 255 of the characters a-z 0-9 . - _; and a path, or none. Each segment of the path has the characters
// a-z A-Z 0-9 . - _, at least one of them, and is not "." or "..".
bool valid_spiffe_id(std::string_view id) noexcept;

struct AuthorizationOptions {
  // Refused calls, and allowed ones too, are logged with method, identity and peer by the component "audit".
  bool log_refused = true;
  bool log_allowed = false;
  // More lines of refused calls, or of allowed ones, within a second are counted and not written; a later line of the
  // same kind states their number. Of the whole server.
  std::uint32_t log_lines_per_second_max = 20;
};

// Refuses calls that no rule allows. Without a rule, every call is allowed; once there is one, only calls that a rule
// allows. A refused caller receives permission_denied, or unauthenticated if it has proved nothing.
//   server.use(hawser::Authorization().allow("storage.*", hawser::spiffe("spiffe://example.org/backup")));
// A copy shares its rules. Add the rules before use().
class Authorization {
 public:
  explicit Authorization(AuthorizationOptions options = {});
  // Allows callers that are `who` to call `method`: a name as IncomingCall::method() returns it, or a beginning of
  // names followed by '*'. Throws std::invalid_argument if there is a '*' elsewhere, or if `who` is empty.
  Authorization& allow(std::string_view method, Who who) &;
  Authorization&& allow(std::string_view method, Who who) &&;
  // True if a rule allows it, or if there is none.
  bool allows(std::string_view method, const Identity& identity) const;

  // The interceptor.
  Task<Result<void>> operator()(IncomingCall& call, Next next) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The token of a call: the metadata "authorization" with the scheme "Bearer". Empty if there is none. Valid until the
// metadata is changed.
std::string_view bearer_token(const IncomingCall& call) noexcept;

struct BearerTokensOptions {
  bool required = false;  // A call without a token is refused. Otherwise it keeps the identity of its connection.
  bool keep = false;      // The handler sees the token among the metadata.
  // Calls that this interceptor refuses are logged by the component "audit", as those that Authorization refuses.
  bool log_refused = true;
  std::uint32_t log_lines_per_second_max = 20;
};

// Authenticates by fixed tokens. A call with an unknown token is refused with unauthenticated. How long the comparison
// takes depends on the length of the token that was sent and on the number of tokens, and not on their contents.
// A copy shares its tokens. Add the tokens before use().
class BearerTokens {
 public:
  // Shorter tokens can be guessed.
  static constexpr std::size_t token_bytes_min = 16;

  explicit BearerTokens(BearerTokensOptions options = {});
  // Callers that send `token` are `identity`; its kind becomes `token`. Throws std::invalid_argument if the token has
  // fewer than token_bytes_min bytes or is a duplicate. The text does not quote it.
  BearerTokens& add(std::string_view token, Identity identity) &;
  BearerTokens&& add(std::string_view token, Identity identity) &&;
  // Returns null if nobody has that token.
  const Identity* find(std::string_view token) const noexcept;

  // The interceptor.
  Task<Result<void>> operator()(IncomingCall& call, Next next) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Compares secrets. The time depends on the length of `given` only.
bool equal_in_constant_time(std::string_view given, std::string_view secret) noexcept;

}  // namespace hawser
