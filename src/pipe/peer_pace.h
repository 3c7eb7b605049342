#pragma once

#include <cstddef>
#include <cstdint>

#include "hawser/detail/receive_account.h"
#include "pipe/pause_reasons.h"

namespace hawser::pipe {

// Decides whether a peer for which memory is held is too slow. It is asked once in each window of time, and compares
// with the previous window. docs/decisions/0069. Loop's thread only.
class PeerPace {
 public:
  // The state of a connection at the end of a window. Counts are of all bytes or messages so far.
  struct Sample {
    bool receiving = false;  // A message has begun and is not complete.
    ReadPause pause = ReadPause::none;
    std::uint64_t messages = 0;  // Differs whenever another message has arrived.
    std::uint64_t arrived = 0;   // Bytes from the peer.
    std::uint64_t sent = 0;      // Bytes that the peer, or the kernel on its behalf, has taken.
    std::uint64_t backlog = 0;   // Bytes that wait to be sent.
  };
  // How the peer fell behind. `sending`: one message was being received at both ends of the window, and fewer bytes of
  // it came than the peer must send. `taking`: more than half of the loop's budget is used, and the peer took neither
  // all of the backlog of the window's beginning nor what it must take.
  enum class Behind : std::uint8_t { no, sending, taking };

  // `bytes`: what a peer must send or take in a window. `account` pays for the connection's memory.
  Behind check(const Sample& now, std::uint64_t bytes, const detail::ReceiveAccount& account) noexcept;

 private:
  Sample last_;
};

}  // namespace hawser::pipe
