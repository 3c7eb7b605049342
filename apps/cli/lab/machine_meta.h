#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/lab/options.h"

namespace hawser::cli::lab {

// What a file says of where its figures come from: names and values.
std::vector<std::pair<std::string, std::string>> machine_meta(const CommonOptions& options);

}  // namespace hawser::cli::lab
