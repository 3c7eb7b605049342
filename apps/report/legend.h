#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hawser::report {

// A colour of a drawing and its meaning.
struct LegendEntry {
  std::string text{};
  unsigned colour = 0;
  bool dashed = false;
};

// Returns the legend as an HTML element, or nothing if it has no entries.
std::string legend_html(const std::vector<LegendEntry>& legend);

// Size of an SVG element that LineChart or BarChart drew, in its own units.
struct DrawingSize {
  unsigned width = 0;
  unsigned height = 0;
};
DrawingSize size_of(std::string_view svg);

// Returns an SVG element of a page as a file of its own: with the legend below it, and the colours of the light page.
std::string standalone_svg(std::string_view svg, const std::vector<LegendEntry>& legend);

}  // namespace hawser::report
