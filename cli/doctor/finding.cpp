#include "doctor/finding.h"

#include <algorithm>

namespace hawser::cli::doctor {

std::string_view to_string(Severity severity) noexcept {
  switch (severity) {
    case Severity::good: return "good";
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::problem: return "problem";
  }
  return "unknown";
}

Severity worst(const Report& report) noexcept {
  Severity worst = Severity::good;
  for (const Section& section : report.sections) {
    for (const Finding& finding : section.findings) worst = std::max(worst, finding.severity);
  }
  return worst;
}

int exit_status(const Report& report) noexcept { return worst(report) > Severity::note ? 1 : 0; }

}  // namespace hawser::cli::doctor
