// Threads that use TLS while the process exits.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cstdlib>

#include "base/temporary_folder.h"
#include "security/tls/authority.h"

namespace hawser::tls_test {

TEST(TlsAtExit, OpensslIsUsableUntilTheProcessHasEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        // Runs after the functions that are registered later.
        std::atexit([] {
          EVP_MD* const hash = EVP_MD_fetch(nullptr, "SHA256", nullptr);
          _exit(hash != nullptr ? 0 : 1);
        });
        {
          TemporaryFolder folder;
          const security::tls::Authority authority(folder.path().string(), "authority");
        }
        std::exit(2);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace hawser::tls_test
