#pragma once

#include <string_view>

namespace hawser::bench {

// How the page looks, by light and in the dark.
std::string_view page_style() noexcept;

}  // namespace hawser::bench
