#include "bench/run/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/load/size.h"

namespace hawser::bench {

Progress::Progress(std::vector<Cell> cells, double cell_s)
    : cells_(std::move(cells)), cell_s_(cell_s), terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

std::string Progress::line() const {
  const auto now = Clock::now();
  const double whole = std::chrono::duration<double>(cell_start_ - start_).count();
  const double each = current_ == 0 ? cell_s_ : whole / static_cast<double>(current_);
  const double spent = std::chrono::duration<double>(now - cell_start_).count();
  const double left = std::max(0.0, each - spent) + each * static_cast<double>(cells_.size() - current_ - 1);
  const Cell& cell = cells_[current_];
  return fmt::format("cell {} of {}: {}, {}, {}, {} x {}; {:.0f} s left", current_ + 1, cells_.size(), cell.transport,
                     to_string(cell.mode), to_string(cell.wait), format_size(cell.size_bytes), cell.concurrency, left);
}

void Progress::begin(std::size_t cell) {
  current_ = cell;
  cell_start_ = Clock::now();
  begun_ = true;
  if (terminal_) {
    refresh();
  } else {
    fmt::print(stderr, "{}\n", line());
  }
}

void Progress::refresh() {
  if (!terminal_ || !begun_) return;
  fmt::print(stderr, "\r\033[K{}", line());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace hawser::bench
