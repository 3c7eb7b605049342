#pragma once

#include <optional>
#include <string>

#include "hawser/error.h"

namespace hawser {

// Returns the bytes of a file; nothing if there is no such file. Fails with `unavailable` if it cannot be read now, for
// example while no descriptor is free: a caller that remembers what it has read tries again later. A std::ifstream
// makes no difference between these.
Result<std::optional<std::string>> contents_of_file(const std::string& path);

}  // namespace hawser
