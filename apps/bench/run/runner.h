#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"
#include "bench/run/signals.h"
#include "bench/run/system.h"
#include "process/child.h"

namespace hawser::bench {

// Measures cells with a server process and a client process, which it starts, pins and watches.
class Runner {
 public:
  // Receives the progress of the measurement.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void begun(std::size_t cell) = 0;  // Index among the cells passed to measure().
    virtual void measured(const CellResult& result) = 0;
    virtual void waiting() = 0;  // Called several times a second.
  };

  Runner(const RunOptions& options, Observer& observer) : options_(options), observer_(observer) {}

  // Measures `cells`, which share the transport and the way of waiting. With RunOptions::connect, the server at that
  // address is used. Returns false if the run must end: see problem() and interrupted_by().
  bool measure(const System& system, const std::vector<Cell>& cells);

  const std::string& problem() const noexcept { return problem_; }  // Error that ended the run early.
  int interrupted_by() const noexcept { return interrupted_by_; }   // Signal that ended the run early, or 0.
  bool going() const noexcept { return problem_.empty() && interrupted_by_ == 0; }

  const Connected& pollers() const noexcept { return pollers_; }
  // 0: the server is not a process of this machine.
  std::size_t server_memory_bytes_max() const noexcept { return server_memory_bytes_max_; }
  std::size_t client_memory_bytes_max() const noexcept { return client_memory_bytes_max_; }

 private:
  void watch(process::Child& child, process::Child* other, double silence_s,
             const std::function<bool(const Event&)>& enough);
  void take_lines(process::Child& child, const std::function<bool(const Event&)>& enough, bool& heard, bool& done);
  void look_after(process::Child& child, process::Child* other);

  const RunOptions& options_;
  Observer& observer_;
  const Signals signals_;
  std::string problem_;
  int interrupted_by_ = 0;
  Connected pollers_;
  std::size_t server_memory_bytes_max_ = 0;
  std::size_t client_memory_bytes_max_ = 0;
};

// Chooses processors for the client, and for the server if there is one to start, where the options leave them open.
void choose_processors(RunOptions& options, bool with_server);
// Raises the limit of descriptors to what `connections` need. Returns the error, or an empty string.
std::string raise_descriptors_max(std::size_t connections);

}  // namespace hawser::bench
