#pragma once

#include <string_view>

namespace hawser::report {

// How the page looks, by light and in the dark.
std::string_view page_style() noexcept;

// Of a drawing that is no part of a page: the light page's colours.
std::string_view standalone_svg_style() noexcept;

}  // namespace hawser::report
