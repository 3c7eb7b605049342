#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hawser {

// Texts of numbers for pages and lines. The locale of the process does not matter: the decimal point is a point.

// With `decimals` digits behind the point: "3.28". With 0 there is no point.
std::string fixed_text(double value, int decimals);
// With at most `digits` digits that count, and an exponent for numbers of other magnitudes: "13.6", "2.38e-05".
std::string short_text(double value, int digits);

// A count with its noun, which is given in the singular: "1 entry", "2 entries", "0 bytes".
std::string count_text(std::uint64_t count, std::string_view noun);

}  // namespace hawser
