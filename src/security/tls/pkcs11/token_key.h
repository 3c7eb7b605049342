#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/tls.h"
#include "security/tls/pkcs11/module.h"
#include "security/tls/pkcs11/uri.h"

namespace hawser::security::tls {

// A private key in a token. Threads may sign at the same time, with a session each. When the token has been removed,
// the next signature searches it again. Thread-safe.
class TokenKey {
 public:
  TokenKey(Pkcs11Uri uri, Pkcs11Module& module) : uri_(std::move(uri)), module_(module) {}
  TokenKey(const TokenKey&) = delete;
  TokenKey& operator=(const TokenKey&) = delete;
  ~TokenKey();

  // Finds the key.
  Result<void> open();
  Result<std::vector<std::byte>> sign(const TlsSigningRequest& request);

 private:
  using Session = CK_SESSION_HANDLE;
  struct Signed {
    CK_RV error = CKR_OK;
    std::vector<std::byte> signature;
    std::optional<Error> refusal;  // The key demands the PIN for each signature.
  };

  Result<Session> acquire();
  Result<Session> find();
  void release(Session session, bool lost);
  Result<void> log_in(Session session, CK_USER_TYPE user);
  Result<CK_OBJECT_HANDLE> find_key(Session session) const;
  std::string other_keys(Session session) const;
  Signed sign_once(Session session, CK_MECHANISM& mechanism, const std::vector<unsigned char>& data);
  std::unexpected<Error> failed(const std::string& what, ErrorCode code = ErrorCode::invalid_argument) const {
    return fail(code, "the key " + uri_.shown + ": " + what);
  }

  const Pkcs11Uri uri_;
  Pkcs11Module& module_;
  std::mutex mutex_;  // Guards the following members.
  std::vector<Session> idle_;
  std::optional<CK_OBJECT_HANDLE> key_;  // While the token is present. Valid in each session.
  std::string token_;                    // Its label.
  bool authenticate_always_ = false;     // The PIN is demanded for each signature.
  bool pin_refused_ = false;             // Tokens lock themselves after a few wrong PINs.
};

}  // namespace hawser::security::tls
