#include "cli/doctor/tls.h"

#include <fmt/format.h>

#include <algorithm>

#include "hawser/tls.h"

namespace hawser::cli::doctor {

Section examine_tls(const TlsFiles& files, std::int64_t now) {
  Section section{.name = "tls", .title = "Certificate " + files.certificate_file, .usable = false, .findings = {}};
  const auto report = inspect_certificate({files.certificate_file, files.key_file}, files.host, now);
  if (!report) {
    section.findings.push_back({.id = "tls.files",
                                .severity = Severity::problem,
                                .text = report.error().text,
                                .remedy = "Give a certificate and its key in PEM format.",
                                .subject = {},
                                .figures = {}});
    return section;
  }
  std::string names;
  for (const std::string& name : report->names) names += (names.empty() ? "" : ", ") + name;
  const double days = static_cast<double>(report->ends - now) / 86'400;
  section.usable = report->problems.empty();
  section.findings.push_back({.id = "tls.certificate",
                              .severity = Severity::note,
                              .text = fmt::format("{} by {}, {}, for {}", report->subject, report->issuer, report->key,
                                                  names.empty() ? "no name" : names),
                              .remedy = {},
                              .subject = {},
                              .figures = {}});
  section.findings.push_back({.id = "tls.days",
                              .severity = days < 0    ? Severity::problem
                                          : days < 14 ? Severity::warning
                                                      : Severity::good,
                              .text = fmt::format("it ends in {:.0f} days", days),
                              .remedy = {},
                              .subject = {},
                              .figures = {{"days", days}}});
  for (const std::string& problem : report->problems) {
    const std::size_t colon = problem.rfind(": ");
    section.findings.push_back({.id = "tls.problem",
                                .severity = Severity::problem,
                                .text = problem.substr(0, colon),
                                .remedy = colon == std::string::npos ? std::string() : problem.substr(colon + 2),
                                .subject = {},
                                .figures = {}});
  }
  return section;
}

}  // namespace hawser::cli::doctor
