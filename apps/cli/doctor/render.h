#pragma once

#include <string>

#include "cli/doctor/finding.h"

namespace hawser::cli::doctor {

struct RenderOptions {
  bool colour = false;
  std::size_t columns = 100;  // Longer lines are wrapped.
};

// Returns the report as text for people.
std::string render(const DoctorReport& report, const RenderOptions& options);
// Returns the report as JSON for scripts. docs/doctor.md describes the fields.
std::string to_json(const DoctorReport& report);

}  // namespace hawser::cli::doctor
