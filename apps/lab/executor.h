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

// Work that the lab's roles do besides the verbs. On a real processor it takes time by itself; a simulated processor is
// notified of it by Processor::did().
enum class CpuTask : std::uint8_t { allocate, log_line, fill_byte, handover };

// The processor that runs a role.
class Processor {
 public:
  virtual double now_ns() = 0;
  virtual void did(CpuTask cpu_task, std::size_t times = 1) = 0;

 protected:
  ~Processor() = default;
};

// One side of an experiment: a state machine that never blocks, so that many roles can share a thread and can run in
// virtual time.
class Role {
 public:
  virtual ~Role() = default;
  // Does the work that is possible now. Returns whether there was any. Must not be called after the role is done or has
  // failed.
  virtual Result<bool> step(Processor& processor) = 0;
  virtual bool done() const = 0;
};

// Runs roles until they are done.
class Executor {
 public:
  virtual ~Executor() = default;
  // Each element is the list of roles that one thread runs in turn. The first error of a role ends the run. The run
  // also fails if no role makes progress.
  virtual Result<void> run(std::span<const std::vector<Role*>> threads) = 0;
  virtual bool simulated() const noexcept = 0;
};

// Uses at most `threads_max` threads of this machine, to which the experiment's threads are assigned in turn. Fails if
// no role has had work for `patience`.
std::unique_ptr<Executor> make_executor(unsigned threads_max, Duration patience = std::chrono::seconds(20));

// Runs in virtual time: each thread is a simulated processor, and the processors act in the order of their clocks.
std::unique_ptr<Executor> make_sim_executor(std::shared_ptr<transport::SimFabric> fabric);

}  // namespace hawser::lab
