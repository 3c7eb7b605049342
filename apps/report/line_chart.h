#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hawser::report {

// "5 < 6" as XML has it.
std::string escaped(std::string_view text);

enum class Quantity { per_second, gbit_per_s, microseconds };
// Short, with a unit that suits: "1.5M" (of whatever comes per second), "12.3", "250 us" (with a micro sign), "3 ms".
std::string quantity_text(Quantity quantity, double value);

// About how wide a drawing's text is, in its units: fonts differ, so somewhat more than most need.
constexpr double text_width(std::string_view text) noexcept { return 6.8 * static_cast<double>(text.size()); }

// Lines over categories on a logarithmic scale, or one from 0, as an SVG element. Colours are the page's: series-0 ...
// series-7.
struct LineChart {
  struct Point {
    std::size_t category = 0;
    double value = 0;    // Not drawn unless positive.
    double spread = 0;   // Drawn as a line of this length upwards and downwards.
    std::string note{};  // Shown with the value.
  };
  struct Line {
    std::string name;
    unsigned colour = 0;
    bool dashed = false;
    std::vector<Point> points;
  };

  std::string title;
  std::string category_name;            // What the horizontal axis shows.
  std::vector<std::string> categories;  // From left to right.
  Quantity quantity = Quantity::per_second;
  bool linear = false;
  std::vector<Line> lines;

  std::string svg() const;
};

// Where a logarithmic axis over these values begins, ends and has its marks: 1, 2 or 5 times a power of 10; at least
// two different ones. The values are positive.
std::vector<double> logarithmic_marks(double least, double greatest);

// Where an axis from 0 to this has its marks: 0, and about five steps of 1, 2 or 5 times a power of 10.
std::vector<double> linear_marks(double greatest);

}  // namespace hawser::report
