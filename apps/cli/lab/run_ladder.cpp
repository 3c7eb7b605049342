#include "cli/lab/run_ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/lab/lab_file.h"
#include "cli/lab/machine_meta.h"
#include "cli/lab/perftest.h"
#include "cli/lab/tables.h"

namespace hawser::cli::lab {

using namespace hawser::lab;

namespace {

// Runs the perftest tool for a variant's transfer at the same size and depth. The result is 0 if the tool is not
// requested or cannot run.
class Perftest {
 public:
  Perftest(const CommonOptions& common, std::string device, std::uint64_t iterations)
      : wanted_(common.perftest && !common.simulated),
        port_(common.testbed.port),
        device_(std::move(device)),
        iterations_(iterations) {}

  double gbit_per_s(const LadderVariant& variant) {
    if (!wanted_) return 0;
    const auto figure = run_perftest({.transfer = variant.transfer,
                                      .device = device_,
                                      .port = port_,
                                      .size_bytes = variant.size_bytes,
                                      .depth = variant.depth,
                                      .iterations = iterations_});
    if (figure) return *figure;
    fmt::print(stderr, "hawser: perftest: {}\n", figure.error());
    wanted_ = false;
    return 0;
  }

 private:
  bool wanted_;
  const unsigned port_;
  const std::string device_;
  const std::uint64_t iterations_;
};

}  // namespace

int run_ladder(const CommonOptions& common, const LadderCommand& options) {
  Result<Ground> ground = Ground::open(common);
  if (!ground) {
    fmt::print(stderr, "hawser: {}\n", ground.error().text);
    return 1;
  }
  const Testbed& testbed = *ground->testbed;
  LabFile file{.simulated = common.simulated, .device = testbed.describe(), .meta = machine_meta(common)};
  std::vector<std::pair<const LadderStep*, LadderVariant>> all;
  for (const LadderStep& step : ladder()) {
    if (!options.steps.empty() && std::ranges::find(options.steps, step.number) == options.steps.end()) continue;
    for (LadderVariant& variant : step.variants(options.ladder)) all.emplace_back(&step, std::move(variant));
  }
  Perftest perftest(common, testbed.sender().name(), options.ladder.count);
  ProgressLine progress(all.size());
  fmt::print("{}{}", simulated_notice(file), ladder_heading());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [step, variant] = all[i];
    progress.begin(i, fmt::format("{} {}", step->name, variant.label));
    std::vector<double> figures;
    std::vector<double> tool_figures;
    std::string note;
    for (unsigned repetition = 0; repetition < common.repetitions; ++repetition) {
      const Result<LadderRun> run = variant.run(testbed);
      if (!run) {
        progress.clear();
        fmt::print(stderr, "hawser: step {}, {} {}: {}\n", step->number, step->name, variant.label, run.error().text);
        return 1;
      }
      figures.push_back(static_cast<double>(run->messages * variant.size_bytes) * 8 / run->elapsed_ns);
      note = run->note;
      // Step and tool run in turn, so that disturbances of the machine affect both.
      if (const double figure = perftest.gbit_per_s(variant); figure > 0) tool_figures.push_back(figure);
    }
    file.ladder.push_back({.step = step->number,
                           .name = std::string(step->name),
                           .label = variant.label,
                           .transfer = std::string(to_string(variant.transfer)),
                           .size_bytes = variant.size_bytes,
                           .depth = variant.depth,
                           .gbit_per_s = statistics_of(std::move(figures)),
                           .perftest_gbit_per_s = statistics_of(std::move(tool_figures)).median,
                           .note = note});
    progress.clear();
    fmt::print("{}", ladder_line(file.ladder.back()));
    std::fflush(stdout);
  }
  bool written = common.json.empty() || write_file(common.json, to_json(file));
  written = (common.csv.empty() || write_file(common.csv, to_csv(file))) && written;
  return written ? 0 : 1;
}

}  // namespace hawser::cli::lab
