#include "report/legend.h"

#include <fmt/format.h>

#include <charconv>

#include "report/line_chart.h"
#include "report/page_style.h"

namespace hawser::report {
namespace {

constexpr double edge = 12;
constexpr double line_length = 18;
constexpr double row_height = 19;

// Places the entries in rows of the drawing's width. Returns the rows, and their `height`.
std::string rows_below(const std::vector<LegendEntry>& legend, DrawingSize drawing, double& height) {
  std::string text;
  double x = edge;
  double y = drawing.height + 10;
  for (const LegendEntry& entry : legend) {
    const double wide = line_length + 7 + text_width(entry.text) + 14;
    if (x > edge && x + wide > drawing.width) x = edge, y += row_height;
    text += fmt::format(
        "<g class=\"line series-{}{}\"><polyline points=\"{:.1f},{:.1f} {:.1f},{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n",
        entry.colour, entry.dashed ? " dashed" : "", x, y - 4, x + line_length, y - 4, x + line_length + 7, y,
        escaped(entry.text));
    x += wide;
  }
  height = legend.empty() ? drawing.height : y + 10;
  return text;
}

}  // namespace

std::string legend_html(const std::vector<LegendEntry>& legend) {
  if (legend.empty()) return {};
  std::string text = "<div class=\"legend\">";
  for (const LegendEntry& entry : legend) {
    text += fmt::format("<span class=\"series-{}\"><i{}></i>{}</span>", entry.colour,
                        entry.dashed ? " class=\"dots\"" : "", escaped(entry.text));
  }
  return text + "</div>\n";
}

DrawingSize size_of(std::string_view svg) {
  // viewBox="0 0 WIDTH HEIGHT"
  constexpr std::string_view before = "viewBox=\"0 0 ";
  DrawingSize size;
  const std::size_t at = svg.find(before);
  if (at == std::string_view::npos) return size;
  const char* const end = svg.data() + svg.size();
  const auto [rest, error] = std::from_chars(svg.data() + at + before.size(), end, size.width);
  if (error == std::errc() && rest != end) std::from_chars(rest + 1, end, size.height);
  return size;
}

std::string standalone_svg(std::string_view svg, const std::vector<LegendEntry>& legend) {
  const DrawingSize drawing = size_of(svg);
  const std::size_t begun = svg.find('>');
  const std::size_t ends = svg.rfind("</svg>");
  if (drawing.width == 0 || begun == std::string_view::npos || ends == std::string_view::npos) return std::string(svg);
  double height = 0;
  const std::string below = rows_below(legend, drawing, height);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
      "xmlns=\"http://www.w3.org/2000/svg\"><style>{2}</style>{3}{4}</svg>\n",
      drawing.width, height, standalone_svg_style(), svg.substr(begun + 1, ends - begun - 1), below);
}

}  // namespace hawser::report
