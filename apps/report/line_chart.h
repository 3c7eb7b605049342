#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hawser::report {

// Escapes a text for XML: `5 < 6` becomes `5 &lt; 6`.
std::string escaped(std::string_view text);

enum class Quantity { per_second, gbit_per_s, microseconds };
// Returns a short text with a suitable unit: "1.5M" (for a rate), "12.3", "250 us" (with a micro sign), "3 ms".
std::string quantity_text(Quantity quantity, double value);

// Estimates the width of a text in a drawing's units. Fonts differ, so the estimate is wider than most need.
constexpr double text_width(std::string_view text) noexcept { return 6.8 * static_cast<double>(text.size()); }

// Lines over categories on a logarithmic scale, or on a linear one from 0, as an SVG element. The colours are those of
// the page: series-0 to series-7.
struct LineChart {
  struct Point {
    std::size_t category = 0;
    double value = 0;    // Not drawn unless positive.
    double spread = 0;   // Drawn as a line of this length in both directions.
    std::string note{};  // Shown with the value.
  };
  struct Line {
    std::string name;
    unsigned colour = 0;
    bool dashed = false;
    std::vector<Point> points;
  };

  std::string title;
  std::string category_name;            // Label of the horizontal axis.
  std::vector<std::string> categories;  // From left to right.
  Quantity quantity = Quantity::per_second;
  bool linear = false;
  std::vector<Line> lines;

  std::string svg() const;
};

// Returns the marks of a logarithmic axis over these values, with its ends: 1, 2 or 5 times powers of 10, at least two
// different ones. The values must be positive.
std::vector<double> logarithmic_marks(double least, double greatest);

// Returns the marks of an axis from 0 to `greatest`: 0, and about five steps of 1, 2 or 5 times a power of 10.
std::vector<double> linear_marks(double greatest);

}  // namespace hawser::report
