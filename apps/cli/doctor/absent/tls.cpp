#include "cli/doctor/tls.h"

namespace hawser::cli::doctor {

Section examine_tls(const TlsFiles& files, std::int64_t) {
  const bool wanted = !files.certificate_file.empty();
  return {.name = "tls",
          .title = wanted ? "Certificate " + files.certificate_file : "TLS",
          .usable = false,
          .findings = {{.id = "tls.absent",
                        .severity = wanted ? Severity::problem : Severity::note,
                        .text = "this build has no TLS",
                        .remedy = "Install libssl-dev and build it again.",
                        .subject = {},
                        .figures = {}}}};
}

}  // namespace hawser::cli::doctor
