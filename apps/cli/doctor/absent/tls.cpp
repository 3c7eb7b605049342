#include "cli/doctor/tls.h"

namespace hawser::cli::doctor {

Section examine_tls(const TlsFiles& files, std::int64_t) {
  return {.name = "tls",
          .title = "Certificate " + files.certificate_file,
          .usable = false,
          .findings = {{.id = "tls.absent",
                        .severity = Severity::problem,
                        .text = "this build has no TLS",
                        .remedy = "Install libssl-dev and build it again.",
                        .subject = {},
                        .figures = {}}}};
}

}  // namespace hawser::cli::doctor
