#pragma once

#include <optional>
#include <string_view>

namespace hawser {

// Returns the number that the whole of `text` is: decimal digits with an optional '-', point and exponent, such as
// "-1.5e3". Nothing for another text, and for a number whose magnitude is too large for a double, or so small that it
// becomes 0. The locale of the process does not matter.
std::optional<double> parse_double(std::string_view text) noexcept;

}  // namespace hawser
