#pragma once

#include <string>

#include "cli/doctor/finding.h"

namespace hawser::cli::doctor {

struct RenderOptions {
  bool colour = false;
  std::size_t columns = 100;  // Lines are broken to fit.
};

// For people.
std::string render(const Report& report, const RenderOptions& options);
// For scripts; docs/doctor.md has the fields.
std::string to_json(const Report& report);

}  // namespace hawser::cli::doctor
