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

// How what measures begins and ends.
namespace hawser::bench {

// What forbids to begin, or nothing: files that can't be written, too few descriptors.
std::string preflight_check(const Options& options);

// Says what was wrong, and gives the exit status. `unwritten` is what write_files() said, `done` of `all` cells were
// measured.
int finish(const Runner& runner, const Report& report, const std::string& unwritten, std::size_t done, std::size_t all);

// Runs `measure` unless `wrong` says why not; gives the exit status.
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
