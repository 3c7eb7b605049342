#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "hawser/time.h"

namespace hawser {
class Loop;
}

namespace hawser::pipe {

// A connection's turn on its loop. A turn ends after `time_max` and continues in a later tick: other connections are
// served in between, whatever the messages of this connection cost. The clock is not read for each small message.
// Loop's thread only.
class LoopTurn {
 public:
  static constexpr Duration time_max = std::chrono::milliseconds(1);
  // The clock is read when the messages since the last reading amount to clock_interval bytes. A message counts as
  // message_cost more than its bytes.
  static constexpr std::size_t clock_interval = 16 * 1024;
  static constexpr std::size_t message_cost = 512;

  // Counts a message. True if the clock is due: then the connection calls over() when the message has been handled, and
  // before that begin() if it wants the message itself to be timed.
  [[nodiscard]] bool add_message(std::size_t bytes) noexcept {
    work_ += message_cost + bytes;
    return work_ >= work_at_clock_;
  }
  // Counts other work, as bytes of a message.
  void add(std::size_t bytes) noexcept { work_ += bytes; }
  // Changes with each message.
  std::uint64_t work() const noexcept { return work_; }

  // The first call in a tick begins the turn.
  void begin(Loop& loop) noexcept;
  // Reads the clock. True if the turn has ended: the connection pauses until a later tick.
  [[nodiscard]] bool over(Loop& loop) noexcept;

 private:
  std::uint64_t work_ = 0;                        // All work so far.
  std::uint64_t work_at_clock_ = clock_interval;  // Value of work_ at which the clock is read next.
  Time tick_{};                                   // The tick of the turn that began last.
  Time begin_{};                                  // The time at which that turn began.
};

}  // namespace hawser::pipe
