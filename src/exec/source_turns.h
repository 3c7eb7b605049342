#pragma once

#include <cstddef>

namespace hawser::exec {

// Divides the polls of a loop between its sources and its poller. The poller costs a system call, so between two of its
// turns the sources have several; many sources must not keep the poller waiting. Loop's thread only.
class SourceTurns {
 public:
  void count_poll() noexcept { ++polls_; }
  // The sources have been polled, if there are any. True if the poller has the next turn.
  bool end_round(bool sources) noexcept {
    if (sources && ++rounds_ != rounds_max && polls_ < polls_max) return false;
    rounds_ = 0;
    polls_ = 0;
    return true;
  }
  // The poller has the turn behind the next round of the sources.
  void let_poller() noexcept { rounds_ = rounds_max - 1; }

 private:
  static constexpr unsigned rounds_max = 16;
  static constexpr std::size_t polls_max = 64;

  unsigned rounds_ = 0;    // Rounds of the sources since the poller's last turn.
  std::size_t polls_ = 0;  // Polls of single sources since then.
};

}  // namespace hawser::exec
