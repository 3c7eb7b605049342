#pragma once

#include <p11-kit/pkcs11.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "security/tls/pkcs11/uri.h"

namespace hawser::security::tls {

// Bytes of a text of a token or module that a message quotes.
inline constexpr std::size_t label_bytes_max = 64;

// A module of PKCS #11, which is loaded and initialised. Thread-safe, as the module itself is.
class Pkcs11Module {
 public:
  // Loads a module when it is first needed. It stays loaded and initialised until the process ends, because other parts
  // of the process may use it too. Empty: that of p11-kit, which has all modules of the system's configuration.
  static Result<Pkcs11Module*> load(const std::string& path);

  // A use of the functions of modules. They end when the process exits, and threads may run longer: exit() waits for
  // the present uses, 2 s at most, and there are no further ones. Thread-safe.
  class Use {
   public:
    Use() noexcept;
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();
    // False while the process exits: the functions must not be called.
    explicit operator bool() const noexcept { return begun_; }

   private:
    bool begun_ = false;
  };

  // Called within a Use.
  const CK_FUNCTION_LIST& functions() const noexcept { return *functions_; }
  // Does nothing while the process exits. On the thread of a loop, where a token must not be
  // waited for, it only notes the session, and close_noted() closes it. May block on other threads.
  void close(CK_SESSION_HANDLE session) noexcept;
  // Closes the sessions that were noted. Called before others are opened. May block.
  void close_noted() noexcept;
  const std::string& path() const noexcept { return path_; }
  // Initialises the module again: a child process must (PKCS #11, 5.4).
  CK_RV initialize() const noexcept;

  struct Token {
    CK_SLOT_ID slot = 0;
    CK_FLAGS flags = 0;
    std::string label;
  };
  // The only token that `uri` matches.
  Result<Token> find_token(const Pkcs11Uri& uri) const;

 private:
  Pkcs11Module(std::string path, CK_FUNCTION_LIST* functions) : path_(std::move(path)), functions_(functions) {}
  const std::string path_;
  CK_FUNCTION_LIST* const functions_;
  std::mutex noted_mutex_;
  std::vector<CK_SESSION_HANDLE> noted_;  // Guarded by noted_mutex_.
};

// Such as "CKR_PIN_INCORRECT (0xa0)".
std::string pkcs11_text(CK_RV error);

}  // namespace hawser::security::tls
