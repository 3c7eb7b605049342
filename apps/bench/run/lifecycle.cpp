#include "bench/run/lifecycle.h"

namespace hawser::bench {

std::string preflight_check(const RunOptions& options) {
  std::string wrong = check_files(options);
  if (wrong.empty()) wrong = raise_descriptors_max(connections_max(options));
  return wrong;
}

int finish(const Runner& runner, const Report& report, const std::string& unwritten, std::size_t done,
           std::size_t all) {
  const std::string& problem = runner.problem().empty() ? unwritten : runner.problem();
  if (runner.interrupted_by() != 0) {
    fmt::print(stderr, "hawser-bench: interrupted after {} of {} cells\n", done, all);
    return interrupted_status;
  }
  if (!problem.empty()) {
    fmt::print(stderr, "hawser-bench: {}\n", problem);
    return failed_status;
  }
  return say_errors(report.results) ? failed_status : 0;
}

}  // namespace hawser::bench
