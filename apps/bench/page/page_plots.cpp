#include "bench/page/page_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/load/size.h"
#include "bench/results/medians.h"
#include "report/legend.h"
#include "report/line_chart.h"

namespace hawser::bench {

using report::escaped;
using report::legend_html;
using report::LegendEntry;
using report::LineChart;
using report::Quantity;
using report::quantity_text;

namespace {

constexpr unsigned colours = 8;
constexpr std::string_view known_systems[] = {"hawser", "baseline", "grpc", "capnp"};

// An axis of the table.
enum class Axis { size, concurrency };

Axis opposite(Axis axis) { return axis == Axis::size ? Axis::concurrency : Axis::size; }
std::size_t length_of(const PageGroup& group, Axis axis) {
  return axis == Axis::size ? group.sizes_bytes.size() : group.concurrencies.size();
}
std::string value_text(const PageGroup& group, Axis axis, std::size_t at) {
  return axis == Axis::size ? format_size(group.sizes_bytes[at]) : fmt::format("{}", group.concurrencies[at]);
}
const CellResult* find(const PageGroup& group, const PageSeries& series, Axis axis, std::size_t at, std::size_t other) {
  const std::size_t size = axis == Axis::size ? at : other;
  const std::size_t concurrency = axis == Axis::size ? other : at;
  return series.find(group.sizes_bytes[size], group.concurrencies[concurrency]);
}

double value_of(const CellResult& one, Quantity quantity, bool tail) {
  switch (quantity) {
    case Quantity::per_second: return one.calls_per_s();
    case Quantity::gbit_per_s: return one.gbit_per_s();
    case Quantity::microseconds: return tail ? one.p99_us : one.p50_us;
  }
  return 0;
}

std::string quantity_name(Quantity quantity) {
  switch (quantity) {
    case Quantity::per_second: return "Calls/s";
    case Quantity::gbit_per_s: return "Gb/s";
    case Quantity::microseconds: return "Latency";
  }
  return {};
}

// Plots of one quantity along one axis.
class Plots {
 public:
  Plots(const PageGroup& group, Axis axis, Quantity quantity) : group_(group), axis_(axis), quantity_(quantity) {}

  std::string svg() const {
    const std::size_t others = length_of(group_, opposite(axis_));
    if (group_.series.size() == 1) {
      LineChart chart = empty_chart({});
      for (std::size_t other = 0; other < others; ++other) {
        add_lines(chart, group_.series.front(), other, static_cast<unsigned>(other % colours));
      }
      return drawn(std::move(chart));
    }
    std::string text;
    for (std::size_t other = 0; other < others; ++other) {
      LineChart chart = empty_chart(value_text(group_, opposite(axis_), other));
      for (const PageSeries& series : group_.series) add_lines(chart, series, other, colour_of(group_, series));
      text += drawn(std::move(chart));
    }
    return text;
  }

 private:
  LineChart empty_chart(const std::string& other) const {
    std::string title = quantity_name(quantity_) + (axis_ == Axis::size ? " by size" : " by calls in flight");
    if (!other.empty()) title += axis_ == Axis::size ? ", " + other + " in flight" : ", " + other;
    LineChart chart;
    chart.title = title;
    chart.category_name = axis_ == Axis::size ? "payload" : "calls in flight";
    chart.quantity = quantity_;
    for (std::size_t i = 0; i < length_of(group_, axis_); ++i) chart.categories.push_back(value_text(group_, axis_, i));
    return chart;
  }

  void add_lines(LineChart& chart, const PageSeries& series, std::size_t other, unsigned colour) const {
    const bool latency = quantity_ == Quantity::microseconds;
    for (const bool tail : {false, true}) {
      if (tail && !latency) break;
      std::string name = group_.series.size() > 1 ? series.label : value_text(group_, opposite(axis_), other);
      if (latency) name += tail ? " P99" : " P50";
      LineChart::Line line{.name = std::move(name), .colour = colour, .dashed = tail, .points = {}};
      for (std::size_t at = 0; at < length_of(group_, axis_); ++at) {
        const CellResult* one = find(group_, series, axis_, at, other);
        if (one != nullptr) line.points.push_back({at, value_of(*one, quantity_, tail)});
      }
      if (!line.points.empty()) chart.lines.push_back(std::move(line));
    }
  }

  // Draws the chart without the categories that no line has. Empty if at most one category is left.
  static std::string drawn(LineChart chart) {
    std::vector<std::size_t> used;
    for (const LineChart::Line& line : chart.lines) {
      for (const LineChart::Point& point : line.points) used.push_back(point.category);
    }
    std::ranges::sort(used);
    used.erase(std::unique(used.begin(), used.end()), used.end());
    if (used.size() < 2) return {};
    std::vector<std::string> categories;
    for (const std::size_t one : used) categories.push_back(chart.categories[one]);
    chart.categories = std::move(categories);
    for (LineChart::Line& line : chart.lines) {
      for (LineChart::Point& point : line.points) {
        point.category = static_cast<std::size_t>(std::ranges::lower_bound(used, point.category) - used.begin());
      }
    }
    return "<div class=\"panel\">" + chart.svg() + "</div>\n";
  }

  const PageGroup& group_;
  const Axis axis_;
  const Quantity quantity_;
};

std::string legend_of(const PageGroup& group, Axis axis) {
  std::vector<LegendEntry> legend;
  if (group.series.size() > 1) {
    for (const PageSeries& series : group.series) legend.push_back({series.label, colour_of(group, series)});
  } else {
    for (std::size_t i = 0; i < length_of(group, opposite(axis)); ++i) {
      legend.push_back({value_text(group, opposite(axis), i) + (axis == Axis::size ? " in flight" : ""),
                        static_cast<unsigned>(i % colours)});
    }
  }
  legend.push_back({.text = "P99, where latency is shown", .dashed = true});
  return legend_html(legend);
}

std::string heat_cell(const CellResult* ours, const CellResult* its) {
  if (ours == nullptr || its == nullptr || ours->calls == 0 || its->calls == 0) return "<td class=\"none\">\u2013</td>";
  const double ratio = ratio_of(*ours, *its);
  // Full colour at a ratio of 10, or of 1/3.
  const double strength = ratio >= 1 ? std::log10(ratio) : std::log(1 / ratio) / std::log(3.0);
  const int percent = static_cast<int>(std::lround(8 + 62 * std::min(strength, 1.0)));
  return fmt::format(
      "<td style=\"background: color-mix(in srgb, var({}) {}%, var(--panel))\" title=\"{} to {} calls/s\">{}</td>",
      ratio >= 1 ? "--good" : "--bad", percent, quantity_text(Quantity::per_second, ours->calls_per_s()),
      quantity_text(Quantity::per_second, its->calls_per_s()),
      ratio >= 9.95 ? fmt::format("{:.0f}", ratio) : fmt::format("{:.2f}", ratio));
}

}  // namespace

unsigned colour_of(const PageGroup& group, const PageSeries& series) {
  const auto place = std::ranges::find(known_systems, series.system);
  unsigned extra = std::size(known_systems);
  for (const PageSeries& one : group.series) {
    const bool first = &*std::ranges::find(group.series, one.system, &PageSeries::system) == &one;
    const bool known = std::ranges::find(known_systems, one.system) != std::end(known_systems);
    if (&one == &series && first && known) return static_cast<unsigned>(place - std::begin(known_systems));
    if (&one == &series) return extra % colours;
    if (!first || !known) ++extra;
  }
  return 0;
}

std::string heat_maps_of(const PageGroup& group) {
  if (!group.has_ratios()) return {};
  std::string text = "<h3>Hawser's calls/s to those of others: 2 means twice as many</h3>\n<div class=\"maps\">\n";
  for (const PageSeries& peer : group.series) {
    if (peer.system == "hawser") continue;
    const PageSeries* ours = group.ours_for(peer);
    text += fmt::format("<div class=\"panel map\"><h3>to {}</h3><table>\n<tr><th></th>", escaped(peer.label));
    for (const unsigned concurrency : group.concurrencies) text += fmt::format("<th>\u00d7 {}</th>", concurrency);
    text += "</tr>\n";
    for (const std::size_t size : group.sizes_bytes) {
      text += fmt::format("<tr><th class=\"name\">{}</th>", format_size(size));
      for (const unsigned concurrency : group.concurrencies) {
        text += heat_cell(ours->find(size, concurrency), peer.find(size, concurrency));
      }
      text += "</tr>\n";
    }
    text += "</table></div>\n";
  }
  return text + "</div>\n";
}

std::string plots_of(const PageGroup& group) {
  std::string text;
  for (const Axis axis : {Axis::size, Axis::concurrency}) {
    const Quantity throughput = axis == Axis::size ? Quantity::gbit_per_s : Quantity::per_second;
    const std::string throughputs = Plots(group, axis, throughput).svg();
    if (throughputs.empty()) continue;
    const std::string latencies = Plots(group, axis, Quantity::microseconds).svg();
    text += fmt::format("<h3>Throughput and latency by {}</h3>\n", axis == Axis::size ? "size" : "calls in flight");
    text += legend_of(group, axis) + "<div class=\"plots\">\n" + throughputs + "</div>\n<div class=\"plots\">\n" +
            latencies + "</div>\n";
  }
  return text;
}

}  // namespace hawser::bench
