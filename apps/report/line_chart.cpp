#include "report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hawser::report {
namespace {

// Sizes of the drawing, in its own units.
constexpr double width = 460;
constexpr double height = 280;
constexpr double left = 62;
constexpr double right = 16;
constexpr double top = 34;
constexpr double bottom = 44;
constexpr std::size_t marks_max = 7;

std::string number_text(double value) {
  if (value >= 99.5) return fmt::format("{:.0f}", value);
  return value >= 9.95 ? fmt::format("{:.3g}", value) : fmt::format("{:.2g}", value);
}

// Returns the greatest 1, 2 or 5 times a power of 10 that is not above `value`.
double mark_below(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {5.0, 2.0}) {
    if (step * power <= value * (1 + 1e-9)) return step * power;
  }
  return power;
}

double mark_after(double mark) {
  const double power = std::pow(10, std::floor(std::log10(mark) + 1e-9));
  const double step = mark / power;
  return step < 1.5 ? 2 * power : step < 3 ? 5 * power : 10 * power;
}

bool is_power_of_10(double mark) {
  const double digits = std::log10(mark);
  return std::abs(digits - std::round(digits)) < 1e-6;
}

struct Axes {
  double least;
  double greatest;
  std::size_t categories;
  bool linear;

  double x(std::size_t category) const {
    const double part = categories > 1 ? static_cast<double>(category) / static_cast<double>(categories - 1) : 0.5;
    constexpr double inset = 18;
    return left + inset + part * (width - left - right - 2 * inset);
  }
  double y(double value) const {
    const double part =
        linear ? value / greatest : std::log(std::max(value, least) / least) / std::log(greatest / least);
    return height - bottom - part * (height - top - bottom);
  }
};

std::string line_svg(const LineChart::Line& line, const LineChart& chart, const Axes& axes) {
  std::string path;
  std::string points;
  for (const auto& [category, value, spread, note] : line.points) {
    if (!(value > 0)) continue;
    if (spread > 0) {
      points += fmt::format("<line class=\"spread\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>",
                            axes.x(category), axes.y(value + spread), axes.y(std::max(0.0, value - spread)));
    }
    const std::string place = fmt::format("{:.1f},{:.1f}", axes.x(category), axes.y(value));
    path += (path.empty() ? "" : " ") + place;
    points += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}, {}: {}{}</title></circle>",
                          axes.x(category), axes.y(value), line.dashed ? "2.2" : "3.2", escaped(line.name),
                          escaped(chart.categories[category]), quantity_text(chart.quantity, value),
                          note.empty() ? "" : ", " + escaped(note));
  }
  return fmt::format("<g class=\"line series-{}{}\"><polyline points=\"{}\"/>{}</g>\n", line.colour,
                     line.dashed ? " dashed" : "", path, points);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      // XML forbids most control characters.
      default: result += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
  }
  return result;
}

std::string quantity_text(Quantity quantity, double value) {
  if (quantity == Quantity::microseconds) {
    if (value >= 999.5e3) return number_text(value / 1e6) + " s";
    return value >= 999.5 ? number_text(value / 1e3) + " ms" : number_text(value) + " \u00b5s";
  }
  if (value <= 0) return "0";
  if (quantity == Quantity::gbit_per_s) return number_text(value);
  if (value >= 999.5e3) return number_text(value / 1e6) + "M";
  return value >= 999.5 ? number_text(value / 1e3) + "k" : number_text(value);
}

std::vector<double> logarithmic_marks(double least, double greatest) {
  std::vector<double> marks = {mark_below(least)};
  while (marks.size() < 2 || marks.back() < greatest * (1 - 1e-9)) marks.push_back(mark_after(marks.back()));
  if (marks.size() <= marks_max) return marks;
  // If there are too many marks, only the ends and the powers of 10 remain.
  std::vector<double> fewer;
  for (const double mark : marks) {
    if (is_power_of_10(mark) || mark == marks.front() || mark == marks.back()) fewer.push_back(mark);
  }
  return fewer;
}

std::vector<double> linear_marks(double greatest) {
  const double power = std::pow(10, std::floor(std::log10(greatest / 5)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (greatest / step > 6) step = factor * power;
  }
  std::vector<double> marks = {0};
  while (marks.back() < greatest * (1 - 1e-9)) marks.push_back(marks.back() + step);
  return marks;
}

std::string LineChart::svg() const {
  double least = std::numeric_limits<double>::max();
  double greatest = 0;
  for (const Line& line : lines) {
    for (const Point& point : line.points) {
      if (!(point.value > 0)) continue;
      least = std::min(least, point.value);
      greatest = std::max(greatest, point.value + (linear ? point.spread : 0));
    }
  }
  if (greatest <= 0) least = 1, greatest = 10;
  const std::vector<double> marks = linear ? linear_marks(greatest) : logarithmic_marks(least, greatest);
  const Axes axes{marks.front(), marks.back(), categories.size(), linear};

  std::string text = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\">\n"
      "<text class=\"title\" x=\"{}\" y=\"18\">{}</text>\n",
      width, height, escaped(title), 8, escaped(title));
  double last_label_y = std::numeric_limits<double>::max();
  for (const double mark : marks) {
    const double y = axes.y(mark);
    text += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left, width - right,
                        y, y);
    constexpr double label_height = 13;
    if (last_label_y - y < label_height) continue;
    last_label_y = y;
    text += fmt::format("<text class=\"mark end\" x=\"{}\" y=\"{:.1f}\">{}</text>\n", left - 7, y + 4,
                        quantity_text(quantity, mark));
  }
  for (std::size_t i = 0; i < categories.size(); ++i) {
    text += fmt::format("<text class=\"mark middle\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", axes.x(i),
                        height - bottom + 17, escaped(categories[i]));
  }
  text += fmt::format("<text class=\"axis middle\" x=\"{}\" y=\"{}\">{}</text>\n", (left + width - right) / 2,
                      height - 8, escaped(category_name));
  // Draws the first line last, so that it is on top.
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += line_svg(*line, *this, axes);
  return text + "</svg>\n";
}

}  // namespace hawser::report
