#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lab/executor.h"
#include "lab/testbed.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::cli::lab {

// Which device an experiment runs on, and what becomes of its results.
struct CommonOptions {
  hawser::lab::TestbedOptions testbed;
  bool simulated = false;
  double simulated_gbit_per_s = 100;
  std::uint64_t seed = 1;
  unsigned threads = 0;  // Of this machine; 0 for as many as it has processors, two at least.
  unsigned repetitions = 5;
  bool perftest = false;
  std::string json;
  std::string csv;
};

// The devices, their executor and the bed; in this order, since the later ones use the earlier.
struct Ground {
  std::shared_ptr<transport::rdma::Verbs> verbs;
  std::unique_ptr<hawser::lab::Executor> executor;
  std::unique_ptr<hawser::lab::Testbed> testbed;

  static Result<Ground> open(const CommonOptions& options);
};

// A line on stderr that says how far it is: it changes on a terminal, else there is a line for each tenth.
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
