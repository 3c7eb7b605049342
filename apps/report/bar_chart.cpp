#include "report/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace hawser::report {
namespace {

constexpr double width = 760;
constexpr double left_min = 120;
constexpr double left_max = 420;
constexpr double right = 70;
constexpr double top = 36;
constexpr double bar_height = 15;
constexpr double pitch = 23;

}  // namespace

std::string BarChart::svg() const {
  double greatest = 0;
  for (const Bar& bar : bars) greatest = std::max({greatest, bar.value + bar.spread, bar.mark});
  if (greatest <= 0) greatest = 1;
  double left = left_min;
  for (const Bar& bar : bars) left = std::clamp(text_width(bar.label) + 24, left, left_max);
  const double height = top + pitch * static_cast<double>(bars.size()) + 8;
  const auto x = [&](double value) { return left + std::max(0.0, value) / greatest * (width - left - right); };
  std::string text = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\">\n"
      "<text class=\"title\" x=\"8\" y=\"18\">{}</text>\n",
      width, height, escaped(title), escaped(title));
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double y = top + pitch * static_cast<double>(i);
    const double middle = y + bar_height / 2;
    text += fmt::format("<g class=\"bars series-{}\"><text class=\"end\" x=\"{}\" y=\"{:.1f}\">{}</text>", bar.colour,
                        left - 8, middle + 4, escaped(bar.label));
    text += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\"/>", left, y,
                        x(bar.value) - left, bar_height);
    if (bar.spread > 0) {
      text += fmt::format("<line class=\"spread\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>",
                          x(bar.value - bar.spread), x(bar.value + bar.spread), middle);
    }
    if (bar.mark > 0) {
      text += fmt::format("<line class=\"mark-line\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>",
                          x(bar.mark), y - 3, y + bar_height + 3);
    }
    const double end = x(std::max(bar.value + bar.spread, bar.mark));
    text += fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n", end + 7, middle + 4,
                        quantity_text(quantity, bar.value));
  }
  return text + "</svg>\n";
}

}  // namespace hawser::report
