#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/child.h"
#include "bench/run/options.h"
#include "bench/run/signals.h"
#include "bench/run/system.h"

namespace hawser::bench {

// Measures cells with a server's and a client's process, which it starts, pins and watches.
class Runner {
 public:
  // Who is told meanwhile.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void begun(std::size_t cell) = 0;  // Among those given to measure().
    virtual void measured(const CellResult& result) = 0;
    virtual void waiting() = 0;  // Several times a second.
  };

  Runner(const Options& options, Observer& observer) : options_(options), observer_(observer) {}

  // Measures `cells`, which share their transport and their way of waiting; with Options::connect against the server
  // there. False if that was the end: see problem() and interrupted_by().
  bool measure(const System& system, const std::vector<Cell>& cells);

  const std::string& problem() const noexcept { return problem_; }  // What ended the run early.
  int interrupted_by() const noexcept { return interrupted_by_; }   // The signal that did, or 0.
  bool going() const noexcept { return problem_.empty() && interrupted_by_ == 0; }

  const Connected& pollers() const noexcept { return pollers_; }
  std::size_t server_memory_bytes_max() const noexcept { return server_memory_bytes_max_; }  // 0: not ours to watch.
  std::size_t client_memory_bytes_max() const noexcept { return client_memory_bytes_max_; }

 private:
  void watch(Child& child, Child* other, double silence_s, const std::function<bool(const Event&)>& enough);
  void take_lines(Child& child, const std::function<bool(const Event&)>& enough, bool& heard, bool& done);
  void look_after(Child& child, Child* other);

  const Options& options_;
  Observer& observer_;
  const Signals signals_;
  std::string problem_;
  int interrupted_by_ = 0;
  Connected pollers_;
  std::size_t server_memory_bytes_max_ = 0;
  std::size_t client_memory_bytes_max_ = 0;
};

// Settles the processors that were left open: the client's, and the server's if there is one to start.
void choose_processors(Options& options, bool with_server);
// Allows as many descriptors as `connections` need; gives what is wrong, or nothing.
std::string raise_descriptors_max(std::size_t connections);

}  // namespace hawser::bench
