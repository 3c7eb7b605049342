#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lab/executor.h"
#include "lab/testbed.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::cli::lab {

// Device of an experiment and destination of its results.
struct CommonOptions {
  hawser::lab::TestbedOptions testbed;
  bool simulated = false;
  double simulated_gbit_per_s = 100;
  std::uint64_t seed = 1;
  unsigned threads = 0;  // Number of threads; 0: the number of processors, at least two.
  unsigned repetitions = 5;
  bool perftest = false;
  std::string json;
  std::string csv;
};

// The devices, their executor and the testbed. The order matters: later members use earlier ones.
struct Ground {
  std::shared_ptr<transport::rdma::Verbs> verbs;
  std::unique_ptr<hawser::lab::Executor> executor;
  std::unique_ptr<hawser::lab::Testbed> testbed;

  static Result<Ground> open(const CommonOptions& options);
};

// Shows the progress on stderr: on a terminal by one line that changes, else by a line for each tenth.
class ProgressLine {
 public:
  explicit ProgressLine(std::size_t steps);
  ~ProgressLine();
  void begin(std::size_t step, const std::string& what);
  void clear();

 private:
  const std::size_t steps_;
  const bool terminal_;
  std::size_t tenth_ = 0;
  bool begun_ = false;
  bool shown_ = false;
};

}  // namespace hawser::cli::lab
