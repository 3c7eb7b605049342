#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"

namespace hawser::cli::doctor {

// A certificate to be examined.
struct TlsFiles {
  std::string certificate_file;  // Empty: none.
  std::string key_file;          // Empty: the key is not examined.
  std::string host;              // The name that it should be valid for; empty: any.
};

// `now` is in seconds since 1970. Examines whether the kernel can encrypt, and the certificate if there is one.
Section examine_tls(const TlsFiles& files, std::int64_t now);

}  // namespace hawser::cli::doctor
