#pragma once

#include <string_view>
#include <vector>

namespace hawser::runtime {

// Returns the names of the transports of this library, by rank.
std::vector<std::string_view> built_in_names();

}  // namespace hawser::runtime
