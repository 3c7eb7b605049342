#pragma once

#include <cstddef>
#include <cstdint>

#include "hawser/time.h"

namespace hawser::rpc {

// Decides from what a connection receives and sends whether its peer lives. After an interval without a sign of life,
// the peer is silent and is to be asked by a ping; after two, it is lost. A peer that takes nothing of the backlog for
// two intervals is stuck. No clock and no timer: the session calls check() at the time due(). Loop's thread only.
class PeerLife {
 public:
  // The state of the connection at a check. `sent` and `arrived` are of all bytes so far.
  struct Sample {
    std::uint64_t sent = 0;
    std::uint64_t arrived = 0;
    std::size_t backlog = 0;
    bool paused = false;  // This side does not read, so the silence of the peer means nothing.
  };
  enum class Verdict : std::uint8_t { alive, silent, lost, stuck };

  explicit PeerLife(Time now) noexcept : due_(now), last_received_(now), last_progress_(now), last_check_(now) {}

  // Silence and standstill count from now on.
  void begin(Time now, Duration interval) noexcept {
    last_received_ = last_progress_ = last_check_ = now;
    due_ = now + interval;
  }
  void on_message(Time now) noexcept { last_received_ = now; }
  // Time that has passed since due() does not count: this side did not run, and perhaps no ping was sent.
  Verdict check(Time now, Duration interval, const Sample& sample) noexcept;
  // Keeps its value when the peer is lost or stuck.
  Time due() const noexcept { return due_; }

 private:
  // If less of a backlog moves, it may just be on its way to a socket that nobody reads.
  static constexpr std::size_t long_backlog_bytes = std::size_t{64} << 10;

  Time due_;            // Time of the next check.
  Time last_received_;  // Time of the peer's last sign of life.
  Time last_progress_;  // Time at which the backlog last moved.
  Time last_check_;     // Time of the last check, and what it saw.
  Sample last_;
};

}  // namespace hawser::rpc
