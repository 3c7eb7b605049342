#include "cli/doctor/finding.h"

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

Severity worst(const DoctorReport& report) noexcept {
  Severity worst = Severity::good;
  for (const Section& section : report.sections) {
    for (const Finding& finding : section.findings) worst = std::max(worst, finding.severity);
  }
  return worst;
}

void require(DoctorReport& report, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = std::find_if(report.sections.begin(), report.sections.end(),
                                    [&](const Section& section) { return section.name == name; });
    if (found == report.sections.end()) {
      report.sections.push_back(
          {name,
           name,
           false,
           {{name + ".required", Severity::problem, name + " was required and is not looked at", {}}}});
    } else if (!found->usable) {
      found->findings.push_back(
          {name + ".required", Severity::problem, name + " was required and can't be used", "see the findings above"});
    }
  }
}

int exit_status(const DoctorReport& report) noexcept { return worst(report) > Severity::note ? 1 : 0; }

}  // namespace hawser::cli::doctor
