#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace hawser::protocol::http2 {

// Tests a connection on which nothing arrives. check() is called once in each ping interval. No clock.
class PeerSilence {
 public:
  enum class Verdict : std::uint8_t {
    alive,
    quiet,  // Nothing has arrived for an interval: send a PING.
    dead,   // Nor has the answer to that PING.
  };

  void received(std::size_t bytes) noexcept { arrived_ += bytes; }
  // `expected` is false while the peer need not send anything.
  Verdict check(bool expected = true) noexcept {
    const bool silent = arrived_ == std::exchange(arrived_at_check_, arrived_) && expected;
    if (silent && pinged_) return Verdict::dead;
    pinged_ = silent;
    return silent ? Verdict::quiet : Verdict::alive;
  }
  void restart() noexcept { pinged_ = false; }

 private:
  std::uint64_t arrived_ = 0;
  std::uint64_t arrived_at_check_ = 0;
  bool pinged_ = false;  // A PING was sent at the last check.
};

}  // namespace hawser::protocol::http2
