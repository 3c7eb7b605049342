#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/lab/options.h"
#include "cli/lab/page.h"
#include "cli/lab/run_ladder.h"
#include "cli/lab/run_project.h"
#include "cli/lab/run_study.h"

namespace hawser::cli {
namespace {

using namespace lab;

struct LabOptions {
  CommonOptions common;
  LadderCommand ladder;
  hawser::lab::StudyOptions study;
  bool credits_only = false;
  ReportOptions report;
  ProjectOptions project;
};

void add_common(CLI::App& command, CommonOptions& common) {
  command.add_flag("--simulated", common.simulated, "Use a simulated device in virtual time; needs no hardware");
  command.add_option("--gbit", common.simulated_gbit_per_s, "Rate of the simulated link, Gb/s")
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  command.add_option("--seed", common.seed, "Seed of the simulation; the same seed gives the same figures")
      ->capture_default_str();
  command.add_option("--device", common.testbed.sender_device, "Device of the sender; default: the first device");
  command.add_option("--receiver-device", common.testbed.receiver_device,
                     "Device of the receiver; default: that of the sender");
  command.add_option("--port", common.testbed.port, "Port of the devices")
      ->check(CLI::Range(1, 255))
      ->capture_default_str();
  command
      .add_option("--gid-index", common.testbed.gid_index,
                  "Index in the port's GID table; -1: the first GID of RoCE v2 over IPv4")
      ->check(CLI::Range(-1, 255))
      ->capture_default_str();
  command.add_option("--threads", common.threads, "Number of threads; 0: one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--repetitions", common.repetitions, "Repetitions of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_flag("--perftest", common.perftest, "Run ib_send_bw, ib_write_bw and ib_read_bw at the same points");
  command.add_option("--json", common.json, "Write all figures to this file, for `hawser lab report`");
  command.add_option("--csv", common.csv, "Write all figures to this file");
}

CLI::App* add_ladder(CLI::App& command, LabOptions& options) {
  CLI::App* const ladder = command.add_subcommand(
      "ladder", "Twelve programs, from one send at a time to the limit of the device; each adds one optimisation");
  add_common(*ladder, options.common);
  ladder->add_option("--size", options.ladder.ladder.size_bytes, "Size of a message, bytes")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(1UL, 1UL << 30))
      ->capture_default_str();
  ladder->add_option("--count", options.ladder.ladder.count, "Messages of a measurement")
      ->check(CLI::Range(1UL, 1'000'000'000UL))
      ->capture_default_str();
  ladder->add_option("--depth", options.ladder.ladder.depth, "Work requests outstanding")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  ladder->add_option("--steps", options.ladder.steps, "Numbers of the steps to run, such as 5,8; default: all")
      ->delimiter(',')
      ->check(CLI::Range(1, 12));
  ladder
      ->add_option("--memory", options.ladder.ladder.memory_bytes_max,
                   "Limit of the memory of each side in steps 4 and 5, bytes")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  return ladder;
}

CLI::App* add_study(CLI::App& command, LabOptions& options) {
  CLI::App* const study =
      command.add_subcommand("sendrecv", "Experiments (a) to (h) with Send/Receive, and the model fitted to them");
  add_common(*study, options.common);
  study->add_option("--experiments", options.study.experiments, "Letters of the experiments to run")
      ->check([](const std::string& letters) {
        return letters.find_first_not_of("abcdefgh") == std::string::npos ? "" : "letters a to h";
      })
      ->capture_default_str();
  study->add_option("--series", options.study.series,
                    "Run only the series whose names begin with this, such as batched");
  study->add_option("--count", options.study.count, "Messages of each point")
      ->check(CLI::Range(1UL, 1'000'000'000UL))
      ->capture_default_str();
  study->add_option("--connections", options.study.threads_max, "Largest number of connections in (e) to (h)")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  study->add_option("--size-max", options.study.size_bytes_max, "Largest message in (a) and (d), bytes")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(16UL, 1UL << 24))
      ->capture_default_str();
  study->add_flag("--credits-only", options.credits_only,
                  "Omit the runs without credits, in which senders do not wait for receives");
  return study;
}

CLI::App* add_report(CLI::App& command, LabOptions& options) {
  CLI::App* const report = command.add_subcommand("report", "Make an HTML page from the files that --json has written");
  report->add_option("files", options.report.inputs, "Files that --json of ladder and sendrecv has written")
      ->required();
  report->add_option("-o,--output", options.report.output, "Page to write")->capture_default_str();
  report->add_option("--svg", options.report.svg_folder, "Also write each figure into this folder, as SVG");
  report->add_option("--png", options.report.png_folder, "Also write each figure into this folder, as PNG");
  return report;
}

CLI::App* add_project(CLI::App& command, LabOptions& options) {
  CLI::App* const project = command.add_subcommand("project", "Project the calls/s of Hawser on a card, by simulation");
  project
      ->add_option_function<std::string>(
          "--load",
          [&options](const std::string& name) {
            options.project.load = name == "block" ? ProjectedLoad::block : ProjectedLoad::calls;
          },
          "calls: by size and concurrency; block: the writes of a published block store")
      ->check(CLI::IsMember({"calls", "block"}))
      ->default_str("calls");
  project
      ->add_option("--gbit", options.project.gbit_per_s,
                   "Rate of the link, Gb/s; 0: 200, and 50 for --load block, which are two ports of 25")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  project
      ->add_option("--latency", options.project.latency_us,
                   "Half of the round trip of a small message, us; 0: about 2, uncertain")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  project
      ->add_option("--call-ns", options.project.call_ns,
                   "Processor time of each side for a call without the verbs, ns; 0: about 290, uncertain")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  project->add_option("--draws", options.project.draws, "Number of runs with constants drawn within their uncertainty")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  project->add_option("--seed", options.project.seed, "Seed of the draws")->capture_default_str();
  return project;
}

}  // namespace

Run add_lab(CLI::App& command) {
  const auto options = std::make_shared<LabOptions>();  // Parsed into, and owned by what is returned.
  command.require_subcommand(1);
  const CLI::App* const ladder = add_ladder(command, *options);
  const CLI::App* const study = add_study(command, *options);
  const CLI::App* const report = add_report(command, *options);
  const CLI::App* const project = add_project(command, *options);
  return [options, ladder, study, report, project] {
    options->study.without_credits = !options->credits_only;
    if (ladder->parsed()) return run_ladder(options->common, options->ladder);
    if (study->parsed()) return run_study(options->common, options->study);
    if (report->parsed()) return run_report(options->report);
    if (project->parsed()) return run_project(options->project);
    return wrong_options_status;
  };
}

}  // namespace hawser::cli
