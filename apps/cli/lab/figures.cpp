#include "cli/lab/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/bar_chart.h"
#include "report/line_chart.h"

namespace hawser::cli::lab {

using hawser::report::BarChart;
using hawser::report::LegendEntry;
using hawser::report::LineChart;
using hawser::report::Quantity;

namespace {

constexpr unsigned colours = 8;

enum class View { latency, messages, gbit };

struct Wanted {
  const char* name;
  const char* title;
  View view;
  bool linear;
  // Returns whether a series belongs to the figure.
  bool (*takes)(const std::string& series);
};

bool any(const std::string&) { return true; }
bool plain(const std::string& series) { return series.find("polled") == std::string::npos; }
bool batching(const std::string& series) { return series.starts_with("512 B"); }
bool central(const std::string& series) { return series.starts_with("central"); }
bool ours(const std::string& series) { return series.starts_with("ours"); }

// The names are those of the figures of the evaluation.
const std::multimap<char, Wanted>& wanted() {
  static const std::multimap<char, Wanted> all = {
      {'a', {"send-lat-msgsize", "(a) Latency by message size", View::latency, true, any}},
      {'b', {"send-bw-unack", "(b) Messages/s by unacknowledged messages", View::messages, false, any}},
      {'c', {"send-bw-batch", "(c) Messages/s by batch size", View::messages, true, any}},
      {'d', {"send-bw-msgsize", "(d) Gb/s by message size", View::gbit, false, any}},
      {'e', {"send-bw-threads", "(e) Messages/s by threads", View::messages, false, any}},
      {'e', {"send-bw-threads-gbit", "(e) Gb/s by threads", View::gbit, false, any}},
      {'f', {"send-bw-srq-threads", "(f) Shared receives, central re-poster", View::messages, false, central}},
      {'f', {"send-bw-srq-threads-ours", "(f) Shared receives, each re-posts", View::messages, false, ours}},
      {'g', {"send-bw-n1", "(g) N:1 messages/s by senders", View::messages, false, plain}},
      {'g', {"send-bw-n1-batching", "(g) N:1 with other receive batches", View::messages, true, batching}},
      {'h', {"send-bw-srq-n1", "(h) N:1 over shared receives", View::messages, false, any}},
  };
  return all;
}

double value_in(View view, const StudyRow& row, double value) {
  return view == View::gbit ? value * static_cast<double>(row.size_bytes) * 8 / 1e9 : value;
}

std::string without_suffix(const std::string& series) {
  const std::size_t at = series.find(", no credits");
  return at == std::string::npos ? series : series.substr(0, at);
}

std::vector<LegendEntry> legend_of(const std::vector<std::string>& names, bool predicted) {
  std::vector<LegendEntry> legend;
  for (std::size_t i = 0; i < names.size(); ++i) legend.push_back({names[i], static_cast<unsigned>(i % colours)});
  if (predicted) legend.push_back({.text = "by the model", .dashed = true});
  return legend;
}

std::string note_of(const StudyRow& row) {
  std::string note;
  if (!row.bottleneck.empty()) note = "limited by: " + row.bottleneck;
  if (row.receiver_not_ready > 0) {
    note += fmt::format("{}{} times receiver not ready", note.empty() ? "" : ", ", row.receiver_not_ready);
  }
  return note;
}

Figure draw(const LabFile& file, char letter, const Wanted& what) {
  LineChart chart;
  chart.title = what.title + std::string(file.simulated ? " (simulated)" : "");
  chart.category_name = hawser::lab::experiment(letter).x_name;
  chart.quantity = what.view == View::latency ? Quantity::microseconds
                   : what.view == View::gbit  ? Quantity::gbit_per_s
                                              : Quantity::per_second;
  chart.linear = what.linear;
  std::vector<std::size_t> xs;
  std::vector<std::string> names;
  for (const StudyRow& row : file.study) {
    if (row.experiment != letter || !what.takes(row.series)) continue;
    if (std::ranges::find(xs, row.x) == xs.end()) xs.push_back(row.x);
    const std::string name = without_suffix(row.series);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  if (xs.size() < 2) return {};
  std::ranges::sort(xs);
  for (const std::size_t x : xs) chart.categories.push_back(fmt::format("{}", x));
  bool predicted = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto colour = static_cast<unsigned>(i % colours);
    LineChart::Line measured{.name = names[i], .colour = colour, .points = {}};
    LineChart::Line model{.name = names[i] + ", by the model", .colour = colour, .dashed = true, .points = {}};
    for (const StudyRow& row : file.study) {
      if (row.experiment != letter || row.series != names[i]) continue;
      const auto category = static_cast<std::size_t>(std::ranges::lower_bound(xs, row.x) - xs.begin());
      measured.points.push_back({.category = category,
                                 .value = value_in(what.view, row, row.value.mean),
                                 .spread = value_in(what.view, row, row.value.standard_deviation),
                                 .note = note_of(row)});
      if (row.predicted > 0) {
        model.points.push_back({.category = category, .value = value_in(what.view, row, row.predicted)});
      }
    }
    chart.lines.push_back(std::move(measured));
    predicted = predicted || !model.points.empty();
    if (!model.points.empty()) chart.lines.push_back(std::move(model));
  }
  return {.name = what.name, .svg = chart.svg(), .legend = legend_of(names, predicted)};
}

// Draws the points of senders without credits, if any of them found receivers that were not ready.
Figure draw_without_credits(const LabFile& file, char letter) {
  std::size_t events = 0;
  std::vector<const StudyRow*> rows;
  for (const StudyRow& row : file.study) {
    if (row.experiment != letter || row.latency || row.credits) continue;
    rows.push_back(&row);
    events += row.receiver_not_ready;
  }
  if (events == 0) return {};
  BarChart chart;
  chart.title =
      fmt::format("({}) Without credits: of the rate with them{}", letter, file.simulated ? " (simulated)" : "");
  chart.quantity = Quantity::gbit_per_s;  // A plain number.
  for (const StudyRow* const row : rows) {
    if (row->receiver_not_ready == 0) continue;
    const std::string series = without_suffix(row->series);
    const auto with = std::ranges::find_if(file.study, [&](const StudyRow& other) {
      return other.experiment == letter && other.credits && other.series == series && other.x == row->x;
    });
    if (with == file.study.end() || with->value.mean <= 0) continue;
    chart.bars.push_back({.label = fmt::format("{} x {}: {} RNR", series, row->x, row->receiver_not_ready),
                          .value = row->value.mean / with->value.mean,
                          .mark = 1,
                          .colour = 3});
  }
  if (chart.bars.empty()) return {};
  return {.name = fmt::format("send-no-credits-{}", letter),
          .svg = chart.svg(),
          .legend = {{"with credits, no receiver was found not ready", 2}},
          .wide = true};
}

}  // namespace

std::vector<Figure> ladder_figures(const LabFile& file) {
  if (file.ladder.empty()) return {};
  BarChart chart;
  chart.title = fmt::format("The ladder, Gb/s{}", file.simulated ? " (simulated)" : "");
  bool perftest = false;
  for (const LadderRow& row : file.ladder) {
    if (row.step == 9) continue;  // The step has a different size.
    std::string label = fmt::format("{}. {}", row.step, row.name);
    if (!row.label.empty()) label += ", " + row.label;
    chart.bars.push_back({.label = std::move(label),
                          .value = row.gbit_per_s.mean,
                          .spread = row.gbit_per_s.standard_deviation,
                          .mark = row.perftest_gbit_per_s,
                          .colour = row.transfer == "send"   ? 1u
                                    : row.transfer == "read" ? 3u
                                                             : 0u});
    perftest = perftest || row.perftest_gbit_per_s > 0;
  }
  std::vector<LegendEntry> legend = {{"send", 1}, {"RDMA write", 0}, {"RDMA read", 3}};
  if (perftest) legend.push_back({"perftest at the same size and depth", 2});
  return {{.name = "ladder", .svg = chart.svg(), .legend = std::move(legend), .wide = true}};
}

std::vector<Figure> study_figures(const LabFile& file, char experiment) {
  std::vector<Figure> figures;
  const auto [begin, end] = wanted().equal_range(experiment);
  for (auto one = begin; one != end; ++one) {
    Figure figure = draw(file, experiment, one->second);
    if (!figure.svg.empty()) figures.push_back(std::move(figure));
  }
  if (Figure figure = draw_without_credits(file, experiment); !figure.svg.empty()) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace hawser::cli::lab
