#include "cli/lab/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/try.h"

namespace hawser::cli::lab {

using namespace hawser::lab;

Result<Ground> Ground::open(const CommonOptions& options) {
  Ground ground;
  if (options.simulated) {
    transport::SimParameters parameters;
    parameters.gbit_per_s = options.simulated_gbit_per_s;
    parameters.jitter = 0.05;
    auto fabric = transport::SimFabric::create(parameters, options.seed);
    ground.executor = make_sim_executor(fabric);
    ground.verbs = std::move(fabric);
  } else {
    ground.verbs = transport::rdma::system_verbs();
    const unsigned processors = std::max(2u, std::thread::hardware_concurrency());
    ground.executor = make_executor(options.threads > 0 ? options.threads : processors);
  }
  TRY(Testbed&& testbed, Testbed::open(*ground.verbs, *ground.executor, options.testbed));
  ground.testbed = std::make_unique<Testbed>(std::move(testbed));
  return ground;
}

ProgressLine::ProgressLine(std::size_t steps) : steps_(steps), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::begin(std::size_t step, const std::string& what) {
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{} of {}: {}", step + 1, steps_, what);
    std::fflush(stderr);
    shown_ = true;
  } else if (const std::size_t tenth = 10 * step / std::max<std::size_t>(1, steps_); !begun_ || tenth != tenth_) {
    fmt::print(stderr, "{} of {}: {}\n", step + 1, steps_, what);
    tenth_ = tenth;
  }
  begun_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace hawser::cli::lab
