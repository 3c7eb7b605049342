#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/run/cell.h"

namespace hawser::bench {

// Says on stderr which cell is being measured and how long all will take: one line that changes on a terminal, else a
// line a cell.
class Progress {
 public:
  // `cell_s` is what a cell is expected to take until one has been seen.
  Progress(std::vector<Cell> cells, double cell_s);
  ~Progress() { clear(); }

  void begin(std::size_t cell);
  // Brings the time left up to date.
  void refresh();
  // Takes the line away, so that something else can be written.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line() const;

  const std::vector<Cell> cells_;
  const double cell_s_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point cell_start_;
  std::size_t current_ = 0;
  bool shown_ = false;
  bool begun_ = false;
};

}  // namespace hawser::bench
