#pragma once

#include <cstdint>

namespace hawser::pipe {

// Why a connection does not read its peer.
enum class ReadPause : std::uint8_t {
  none,      // It reads.
  for_peer,  // The peer does not take what waits for it.
  own,       // This side is not ready: a handler is behind, or the turn on the loop has ended.
};

enum class PauseReason : std::uint8_t {
  protocol,  // The protocol or its handler is behind.
  hold,      // The protocol answers another request first.
  turn,      // The turn of the connection on its loop has ended.
  backlog,   // Too much waits for the peer to take it.
  memory,    // There is no memory for the rest of a message.
};

// The reasons for which a connection takes no bytes of its peer. It goes on when none is left.
class PauseReasons {
 public:
  void add(PauseReason reason) noexcept { reasons_ |= bit(reason); }
  void remove(PauseReason reason) noexcept { reasons_ &= ~bit(reason); }
  bool any() const noexcept { return reasons_ != 0; }
  bool has(PauseReason reason) const noexcept { return (reasons_ & bit(reason)) != 0; }
  bool has_other_than(PauseReason reason) const noexcept { return (reasons_ & ~bit(reason)) != 0; }
  // The peer can end the pause only if the backlog is the only reason.
  ReadPause pause() const noexcept {
    if (!any()) return ReadPause::none;
    return has_other_than(PauseReason::backlog) ? ReadPause::own : ReadPause::for_peer;
  }

 private:
  static constexpr unsigned bit(PauseReason reason) noexcept { return 1U << static_cast<unsigned>(reason); }

  unsigned reasons_ = 0;
};

}  // namespace hawser::pipe
