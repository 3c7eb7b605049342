#include "cli/doctor/tls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hawser/tls.h"

namespace hawser::cli::doctor {
namespace {

Finding examine_kernel() {
  const TlsKernelReport report = inspect_tls_kernel();
  Finding finding{.id = "tls.kernel",
                  .severity = report.problem.empty() ? Severity::good : Severity::note,
                  .text = {},
                  .remedy = {},
                  .subject = {},
                  .figures = {{"ciphers", static_cast<double>(report.ciphers.size())}}};
  const std::size_t colon = report.problem.rfind(": ");
  finding.text = report.problem.empty()
                     ? fmt::format("the kernel can encrypt (TlsKernel) with {}", fmt::join(report.ciphers, ", "))
                     : report.problem.substr(0, colon);
  if (colon != std::string::npos) finding.remedy = report.problem.substr(colon + 2);
  return finding;
}

}  // namespace

Section examine_tls(const TlsFiles& files, std::int64_t now) {
  Section section{.name = "tls", .title = "TLS", .usable = true, .findings = {examine_kernel()}};
  if (files.certificate_file.empty()) return section;
  section.title = "Certificate " + files.certificate_file;
  section.usable = false;
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
