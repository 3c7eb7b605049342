#pragma once

#include <string>
#include <string_view>

#include "base/ascii_case.h"
#include "hawser/error.h"
#include "hawser/tls.h"

// Private keys in tokens, by the interface PKCS #11: smart cards, hardware security modules, SoftHSM.
namespace hawser::security::tls {

// True if the name of a key is the URI of one in a token (RFC 7512).
inline bool is_pkcs11(std::string_view name) noexcept {
  constexpr std::string_view scheme = "pkcs11:";
  return equal_without_case(name.substr(0, scheme.size()), scheme);
}

struct Pkcs11Key {
  TlsSign sign;
  std::string name;  // For errors. Without the attributes that may contain a PIN.
};

// Loads the module, logs in, and finds the key. Blocks, except on the thread of a loop: there it only reads the URI,
// and the first signature does the rest. The module stays loaded until the process ends.
Result<Pkcs11Key> open_pkcs11_key(const std::string& uri);
// The file of the PIN, empty: none. For noticing that it has changed.
std::string pin_file_of_pkcs11(const std::string& uri);

}  // namespace hawser::security::tls
