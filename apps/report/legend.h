#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hawser::report {

// What a colour of a drawing means.
struct LegendEntry {
  std::string text{};
  unsigned colour = 0;
  bool dashed = false;
};

// As an HTML element; nothing of nothing.
std::string legend_html(const std::vector<LegendEntry>& legend);

// Of an SVG element that LineChart or BarChart drew, in its own units.
struct DrawingSize {
  unsigned width = 0;
  unsigned height = 0;
};
DrawingSize size_of(std::string_view svg);

// An SVG element of a page as a file of its own: with the legend below it, and the colours of the light page.
std::string standalone_svg(std::string_view svg, const std::vector<LegendEntry>& legend);

}  // namespace hawser::report
