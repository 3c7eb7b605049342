#include "security/tls/pkcs11.h"

namespace hawser::security::tls {

Result<Pkcs11Key> open_pkcs11_key(const std::string&) {
  return fail(ErrorCode::invalid_argument,
              "this build of hawser::tls cannot use keys in tokens (pkcs11:): build it with the headers of p11-kit "
              "(Debian: libp11-kit-dev) and HAWSER_PKCS11=ON, or give the file of a key");
}
std::string pin_file_of_pkcs11(const std::string&) { return {}; }

}  // namespace hawser::security::tls
