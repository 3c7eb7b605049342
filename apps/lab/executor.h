#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hawser/error.h"
#include "hawser/time.h"

namespace hawser::transport {
class SimFabric;
}

namespace hawser::lab {

// Work that the lab's roles do beside the verbs. It takes its time by itself on a real processor; a simulated one is
// told.
enum class CpuTask : std::uint8_t { allocate, log_line, fill_byte, handover };

// The processor that runs a role.
class Processor {
 public:
  virtual double now_ns() = 0;
  virtual void did(CpuTask cpu_task, std::size_t times = 1) = 0;

 protected:
  ~Processor() = default;
};

// One side of an experiment: a state machine that never blocks, so that any number of them can share a thread, and
// virtual time works as well as real.
class Role {
 public:
  virtual ~Role() = default;
  // Does what there is to do; whether there was something. Not called any more once done or failed.
  virtual Result<bool> step(Processor& processor) = 0;
  virtual bool done() const = 0;
};

// Runs roles to their ends.
class Executor {
 public:
  virtual ~Executor() = default;
  // Each element is what one thread drives in turn. The first error of a role ends all, as does standstill.
  virtual Result<void> run(std::span<const std::vector<Role*>> threads) = 0;
  virtual bool simulated() const noexcept = 0;
};

// Threads of this machine: at most `threads_max`, over which the experiment's threads are dealt in turn. Gives up if
// for `patience` no role has had anything to do.
std::unique_ptr<Executor> make_executor(unsigned threads_max, Duration patience = std::chrono::seconds(20));

// Virtual time: each thread is a simulated processor, and they act in the order of their clocks.
std::unique_ptr<Executor> make_sim_executor(std::shared_ptr<transport::SimFabric> fabric);

}  // namespace hawser::lab
