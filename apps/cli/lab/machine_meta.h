#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/lab/options.h"

namespace hawser::cli::lab {

// Returns names and values that describe the origin of a file's figures.
std::vector<std::pair<std::string, std::string>> machine_meta(const CommonOptions& options);

}  // namespace hawser::cli::lab
