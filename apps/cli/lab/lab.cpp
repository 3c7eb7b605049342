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
  command.add_flag("--simulated", common.simulated, "On a simulated device, in virtual time: needs no hardware");
  command.add_option("--gbit", common.simulated_gbit_per_s, "Of the simulated link, Gb/s")
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  command.add_option("--seed", common.seed, "Of the simulation: the same seed gives the same figures")
      ->capture_default_str();
  command.add_option("--device", common.testbed.sender_device, "The sender's device; the first there is by default");
  command.add_option("--receiver-device", common.testbed.receiver_device, "The receiver's; by default the sender's");
  command.add_option("--port", common.testbed.port)->check(CLI::Range(1, 255))->capture_default_str();
  command.add_option("--gid-index", common.testbed.gid_index, "-1 is the first of RoCE v2 over IPv4")
      ->check(CLI::Range(-1, 255))
      ->capture_default_str();
  command.add_option("--threads", common.threads, "Of this machine to run on; 0 is one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--repetitions", common.repetitions, "Of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_flag("--perftest", common.perftest, "Run ib_send_bw, ib_write_bw and ib_read_bw at the same points");
  command.add_option("--json", common.json, "Write all figures to this file, for `hawser lab report`");
  command.add_option("--csv", common.csv, "Write all figures to this file");
}

}  // namespace

Run add_lab(CLI::App& command) {
  const auto options = std::make_shared<LabOptions>();
  command.require_subcommand(1);

  CLI::App* const ladder = command.add_subcommand("ladder", "Twelve steps from one send at a time to the limit");
  add_common(*ladder, options->common);
  ladder->add_option("--size", options->ladder.ladder.size_bytes, "Of a message, bytes")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(1UL, 1UL << 30))
      ->capture_default_str();
  ladder->add_option("--count", options->ladder.ladder.count, "Messages of a measurement")
      ->check(CLI::Range(1UL, 1'000'000'000UL))
      ->capture_default_str();
  ladder->add_option("--depth", options->ladder.ladder.depth, "Work requests outstanding")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  ladder->add_option("--steps", options->ladder.steps, "Numbers of those to run, such as 5,8; all by default")
      ->delimiter(',')
      ->check(CLI::Range(1, 12));
  ladder
      ->add_option("--memory", options->ladder.ladder.memory_bytes_max, "Of each side at most, bytes, in steps 4 and 5")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();

  CLI::App* const study = command.add_subcommand("sendrecv", "The study of Send/Receive, (a) to (h), and its model");
  add_common(*study, options->common);
  study->add_option("--experiments", options->study.experiments, "Letters of those to run")
      ->check([](const std::string& letters) {
        return letters.find_first_not_of("abcdefgh") == std::string::npos ? "" : "letters a to h";
      })
      ->capture_default_str();
  study->add_option("--series", options->study.series, "Only lines whose names begin with this, such as batched");
  study->add_option("--count", options->study.count, "Messages of a point")
      ->check(CLI::Range(1UL, 1'000'000'000UL))
      ->capture_default_str();
  study->add_option("--connections", options->study.threads_max, "Of (e) to (h) at most")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  study->add_option("--size-max", options->study.size_bytes_max, "Of a message in (a) and (d), bytes")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(16UL, 1UL << 24))
      ->capture_default_str();
  study->add_flag("--credits-only", options->credits_only, "Leave out senders that do not wait for receives");

  CLI::App* const report = command.add_subcommand("report", "A page of what --json has written");
  report->add_option("files", options->report.inputs, "Of ladder and sendrecv")->required();
  report->add_option("-o,--output", options->report.output)->capture_default_str();
  report->add_option("--svg", options->report.svg_folder, "Write each figure into this folder too");
  report->add_option("--png", options->report.png_folder, "The same as PNG");

  CLI::App* const project = command.add_subcommand("project", "What calls would make on a card, by simulation");
  project->add_option("--gbit", options->project.gbit_per_s, "Of the link, Gb/s")
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  project
      ->add_option("--latency", options->project.latency_us,
                   "Half a small message's round trip, us; 0 for about 2, uncertain")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  project
      ->add_option("--call-ns", options->project.call_ns,
                   "Of a side's processor for a call, besides the verbs; 0 for about 290, uncertain")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  project->add_option("--draws", options->project.draws, "Runs with constants drawn within their uncertainty")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  project->add_option("--seed", options->project.seed)->capture_default_str();

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
