#include "cli/lab/run_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cli/lab/lab_file.h"
#include "cli/lab/machine_meta.h"
#include "cli/lab/perftest.h"
#include "cli/lab/tables.h"

namespace hawser::cli::lab {

using namespace hawser::lab;

namespace {

// Returns messages/s of ib_send_bw for a point of (d) with credits, to which it is comparable; 0 for other points.
double perftest_of(const CommonOptions& common, const std::string& device, const StudyPoint& point) {
  if (!common.perftest || common.simulated || point.experiment != 'd' || !point.plan.credits) return 0;
  const auto gbit = run_perftest({.transfer = TransferMode::send,
                                  .device = device,
                                  .port = common.testbed.port,
                                  .size_bytes = point.plan.size_bytes,
                                  .depth = point.plan.window,
                                  .iterations = point.plan.count});
  if (gbit) return *gbit * 1e9 / 8 / static_cast<double>(point.plan.size_bytes);
  fmt::print(stderr, "hawser: perftest: {}\n", gbit.error());
  return 0;
}

Result<StudyRow> row_of(const CommonOptions& common, const Testbed& testbed, const StudyPoint& point) {
  StudyRow row{.experiment = point.experiment,
               .series = point.series,
               .x = point.x,
               .latency = point.latency,
               .credits = point.plan.credits,
               .size_bytes = point.plan.size_bytes};
  std::vector<double> figures;
  std::vector<double> medians;
  std::vector<double> tool_figures;
  for (unsigned i = 0; i < common.repetitions; ++i) {
    TRY(const StudySample& sample, measure(testbed, point));
    figures.push_back(point.latency ? sample.message_ns / 1e3 : 1e9 / sample.message_ns);
    medians.push_back(sample.median_latency_ns / 1e3);
    row.receiver_not_ready += sample.receiver_not_ready;
    // Point and tool run in turn, so that disturbances of the machine affect both.
    if (const double figure = perftest_of(common, testbed.sender().name(), point); figure > 0) {
      tool_figures.push_back(figure);
    }
  }
  row.value = statistics_of(std::move(figures));
  row.perftest = statistics_of(std::move(tool_figures)).median;
  if (point.latency) row.value.median = statistics_of(std::move(medians)).median;
  return row;
}

// Fits the model to the points that are suitable, and adds its prediction to every point that it covers.
void model(const std::vector<StudyPoint>& points, LabFile& file) {
  std::vector<FitPoint> measured;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const StudyRow& row = file.study[i];
    if (!fitted(points[i], row.receiver_not_ready)) continue;
    const double ns = row.latency ? row.value.mean * 1e3 : 1e9 / row.value.mean;
    measured.push_back({*workload_of(points[i]), row.latency, ns});
  }
  const Fit fit = fit_model(measured);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto workload = workload_of(points[i]);
    if (!workload) continue;
    const FitPoint point{*workload, points[i].latency, 1};
    const Residual residual = residuals_of(fit.model, {&point, 1}).front();
    file.study[i].predicted = points[i].latency ? residual.predicted_ns / 1e3 : 1e9 / residual.predicted_ns;
    file.study[i].bottleneck = points[i].latency ? "latency" : to_string(residual.bottleneck);
  }
  file.model = FittedModel{fit.model, fit.standard_error, fit.determined, fit.rms_relative};
}

}  // namespace

int run_study(const CommonOptions& common, const StudyOptions& options) {
  Result<Ground> ground = Ground::open(common);
  if (!ground) {
    fmt::print(stderr, "hawser: {}\n", ground.error().text);
    return 1;
  }
  const Testbed& testbed = *ground->testbed;
  LabFile file{.simulated = common.simulated, .device = testbed.describe(), .meta = machine_meta(common)};
  const std::vector<StudyPoint> points = study_points(options);
  ProgressLine progress(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const StudyPoint& point = points[i];
    const std::string what = fmt::format("({}) {}, {}", point.experiment, point.series, point.x);
    progress.begin(i, what);
    Result<StudyRow> row = row_of(common, testbed, point);
    if (!row) {
      progress.clear();
      fmt::print(stderr, "hawser: {}: {}\n", what, row.error().text);
      return 1;
    }
    file.study.push_back(std::move(*row));
  }
  progress.clear();
  model(points, file);
  fmt::print("{}", simulated_notice(file));
  for (const Experiment& one : experiments()) fmt::print("{}", study_table(file, one.letter));
  fmt::print("{}", model_table(*file.model));
  bool written = common.json.empty() || write_file(common.json, to_json(file));
  written = (common.csv.empty() || write_file(common.csv, to_csv(file))) && written;
  return written ? 0 : 1;
}

}  // namespace hawser::cli::lab
