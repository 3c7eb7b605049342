#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/run/cell.h"

namespace hawser::bench {

// Shows on stderr which cell is being measured and the remaining time: as one line that is updated on a terminal, else
// as a line for each cell.
class Progress {
 public:
  // `cell_s` is the expected time of a cell until one has been measured.
  Progress(std::vector<Cell> cells, double cell_s);
  ~Progress() { clear(); }

  void begin(std::size_t cell);
  // Updates the remaining time.
  void refresh();
  // Removes the line, so that other output can be written.
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
