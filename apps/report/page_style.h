#pragma once

#include <string_view>

namespace hawser::report {

// Returns the style sheet of a page, for light and dark displays.
std::string_view page_style() noexcept;

// Returns the style sheet of a drawing outside a page: the colours of the light page.
std::string_view standalone_svg_style() noexcept;

}  // namespace hawser::report
