#pragma once

#include <string_view>
#include <vector>

namespace hawser::setup {

// Of the transports that come with this library, by rank.
std::vector<std::string_view> built_in_names();

}  // namespace hawser::setup
