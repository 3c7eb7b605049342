#include "cli/lab/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace hawser::cli::lab {

using namespace hawser::lab;

namespace {

std::string spread(const Statistics& statistics) {
  return statistics.count > 1 && statistics.mean > 0
             ? fmt::format("{:.1f} %", 100 * statistics.standard_deviation / statistics.mean)
             : "-";
}

// Returns the message rate such as "8.44 M/s", with Gb/s if sizes differ.
std::string value_text(const StudyRow& row) {
  if (row.latency) return fmt::format("{:.2f} us", row.value.mean);
  const double rate = row.value.mean;
  std::string text = rate >= 1e6 ? fmt::format("{:.2f} M/s", rate / 1e6) : fmt::format("{:.1f} k/s", rate / 1e3);
  if (row.experiment == 'd') text = fmt::format("{:.3f} Gb/s", row.gbit_per_s());
  if (row.perftest > 0) text += fmt::format(" ({:.2f})", row.value.median / row.perftest);
  if (row.receiver_not_ready > 0) text += fmt::format(", {} RNR", row.receiver_not_ready);
  return text;
}

}  // namespace

std::string simulated_notice(const LabFile& file) {
  return file.simulated ? "Simulated: a model of a device made these figures, in virtual time.\n\n" : "";
}

std::string ladder_heading() {
  return fmt::format("| {:>4} | {:22} | {:18} | {:>8} | {:>5} | {:>10} | {:>10} | {:>8} | {:>9} | {}\n", "Step", "Name",
                     "", "Size (B)", "Depth", "Mean Gb/s", "Median", "Std dev", "perftest", "Note") +
         "|---:|---|---|---:|---:|---:|---:|---:|---:|---\n";
}

std::string ladder_line(const LadderRow& row) {
  const std::string perftest =
      row.perftest_gbit_per_s > 0 ? fmt::format("{:.2f}", row.gbit_per_s.median / row.perftest_gbit_per_s) : "-";
  return fmt::format("| {:>4} | {:22} | {:18} | {:>8} | {:>5} | {:>10.3f} | {:>10.3f} | {:>8} | {:>9} | {}\n", row.step,
                     row.name, row.label, row.size_bytes, row.depth, row.gbit_per_s.mean, row.gbit_per_s.median,
                     spread(row.gbit_per_s), perftest, row.note);
}

std::string study_table(const LabFile& file, char letter) {
  std::vector<std::string> series;
  std::vector<std::size_t> xs;
  for (const StudyRow& row : file.study) {
    if (row.experiment != letter) continue;
    if (std::find(series.begin(), series.end(), row.series) == series.end()) series.push_back(row.series);
    if (std::find(xs.begin(), xs.end(), row.x) == xs.end()) xs.push_back(row.x);
  }
  if (series.empty()) return {};
  std::sort(xs.begin(), xs.end());
  const Experiment& what = experiment(letter);
  std::string text = fmt::format("({}) {}\n\n| {} |", letter, what.title, what.x_name);
  for (const std::string& name : series) text += fmt::format(" {} |", name);
  text += "\n|---:|";
  for (std::size_t i = 0; i < series.size(); ++i) text += "---:|";
  text += "\n";
  for (const std::size_t x : xs) {
    text += fmt::format("| {} |", x);
    for (const std::string& name : series) {
      const auto row = std::find_if(file.study.begin(), file.study.end(), [&](const StudyRow& one) {
        return one.experiment == letter && one.series == name && one.x == x;
      });
      text += row == file.study.end() ? " - |" : fmt::format(" {} |", value_text(*row));
    }
    text += "\n";
  }
  const bool perftest = std::any_of(file.study.begin(), file.study.end(),
                                    [&](const StudyRow& row) { return row.experiment == letter && row.perftest > 0; });
  return text + (perftest ? "\nIn parentheses: medians, to those of ib_send_bw at the same size and depth.\n\n" : "\n");
}

std::string model_table(const FittedModel& fitted) {
  std::string text = "The model, fitted to (a) to (e)\n\n| symbol | value | standard error |\n|---|---:|---:|\n";
  for (std::size_t i = 0; i < model_fields.size(); ++i) {
    const auto& [name, unit, field] = model_fields[i];
    const std::string error =
        fitted.determined[i] ? fmt::format("{:.1f} %", 100 * fitted.standard_error[i]) : std::string("bounded only");
    text += fmt::format("| {} | {:.4g} {} | {} |\n", name, fitted.model.*field, unit, error);
  }
  return text + fmt::format("\nRoot mean square of the residuals: {:.1f} %\n", 100 * fitted.rms_relative);
}

}  // namespace hawser::cli::lab
