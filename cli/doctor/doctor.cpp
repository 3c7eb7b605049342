#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "doctor/finding.h"
#include "doctor/machine.h"
#include "doctor/render.h"
#include "doctor/system_files.h"
#include "doctor/tcp.h"

namespace hawser::cli {
namespace {

using namespace doctor;

struct Options {
  bool json = false;
  std::vector<std::string> required;
};

Report examine() {
  const SystemFiles files;
  const MachineFacts machine = read_machine(files);
  Report report;
  report.sections.push_back(examine_machine(machine));
  report.sections.push_back(examine_tcp(read_tcp(files, machine)));
  return report;
}

void require(Report& report, const std::vector<std::string>& names) {
  for (Section& section : report.sections) {
    if (section.usable || std::find(names.begin(), names.end(), section.name) == names.end()) continue;
    section.findings.push_back({section.name + ".required", Severity::problem,
                                fmt::format("{} was required and can't be used", section.title),
                                "see the findings above"});
  }
}

RenderOptions terminal() {
  RenderOptions options;
  if (::isatty(STDOUT_FILENO) == 0) return options;
  options.colour = std::getenv("NO_COLOR") == nullptr;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = std::min<std::size_t>(size.ws_col, 120);
  }
  return options;
}

int run(const Options& options) {
  Report report = examine();
  require(report, options.required);
  const std::string page = options.json ? to_json(report) : render(report, terminal());
  std::fputs(page.c_str(), stdout);
  return exit_status(report);
}

}  // namespace

Run add_doctor(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_flag("--json", options->json, "Print JSON");
  command.add_option("--require", options->required, "Transports that must be usable: tcp, shm, ucx, rdma")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "shm", "ucx", "rdma"}));
  command.footer("Exit status: 0 if nothing is wrong, 1 for warnings or problems, 2 for wrong options.");
  return [options] { return run(*options); };
}

}  // namespace hawser::cli
