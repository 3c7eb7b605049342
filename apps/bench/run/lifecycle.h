#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

#include "bench/results/report.h"
#include "bench/run/options.h"
#include "bench/run/run.h"
#include "bench/run/runner.h"

// Steps common to all measurements: checks before the beginning, and output at the end.
namespace hawser::bench {

// Returns why the measurement can't begin, such as files that can't be written or too few descriptors; or an empty
// string.
std::string preflight_check(const RunOptions& options);

// Prints the problems and returns the exit status. `unwritten` is the result of write_files(); `done` of `all` cells
// were measured.
int finish(const Runner& runner, const Report& report, const std::string& unwritten, std::size_t done, std::size_t all);

// Runs `measure` and returns its exit status. If `wrong` is not empty, prints it instead.
template <class Measure>
int run_unless(const std::string& wrong, Measure measure) {
  if (!wrong.empty()) {
    fmt::print(stderr, "hawser-bench: {}\n", wrong);
    return wrong_options_status;
  }
  try {
    return measure();
  } catch (const std::exception& error) {
    fmt::print(stderr, "hawser-bench: {}\n", error.what());
    return failed_status;
  }
}

}  // namespace hawser::bench
