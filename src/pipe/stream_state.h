#pragma once

#include <cassert>
#include <cstdint>

namespace hawser::pipe {

// Which of the two directions of a stream have ended.
class StreamState {
 public:
  enum class Phase : std::uint8_t {
    open,
    peer_ended,       // The peer has ended its direction. This side still sends.
    finishing,        // This side takes nothing more and ends its direction when its queue has been sent.
    finishing_alone,  // Likewise, and the peer has ended its direction.
    finished,         // This side has passed the end of its direction to the stream.
    finished_alone,   // Likewise, and the peer has ended its direction.
    closed,           // The stream is not used any more.
  };

  Phase phase() const noexcept { return phase_; }
  bool closed() const noexcept { return phase_ == Phase::closed; }
  // True from finish() to close().
  bool finishing() const noexcept { return phase_ >= Phase::finishing && !closed(); }
  bool finished() const noexcept { return phase_ >= Phase::finished && !closed(); }
  bool peer_ended() const noexcept {
    return phase_ == Phase::peer_ended || phase_ == Phase::finishing_alone || phase_ == Phase::finished_alone;
  }

  // The events. Each may happen only in phases that allow it: others are mistakes of the caller, which an assertion
  // reports.
  void end_peer() noexcept {
    enter(finished() ? Phase::finished_alone : finishing() ? Phase::finishing_alone : Phase::peer_ended);
  }
  void finish() noexcept { enter(peer_ended() ? Phase::finishing_alone : Phase::finishing); }
  void finish_sent() noexcept { enter(peer_ended() ? Phase::finished_alone : Phase::finished); }
  void close() noexcept { enter(Phase::closed); }

  static constexpr bool allows(Phase from, Phase to) noexcept {
    switch (from) {
      case Phase::open: return to == Phase::peer_ended || to == Phase::finishing || to == Phase::closed;
      case Phase::peer_ended: return to == Phase::finishing_alone || to == Phase::closed;
      case Phase::finishing: return to == Phase::finishing_alone || to == Phase::finished || to == Phase::closed;
      case Phase::finishing_alone:
      case Phase::finished: return to == Phase::finished_alone || to == Phase::closed;
      case Phase::finished_alone: return to == Phase::closed;
      case Phase::closed: break;
    }
    return false;
  }

 private:
  void enter(Phase next) noexcept {
    assert(allows(phase_, next));
    phase_ = next;
  }

  Phase phase_ = Phase::open;
};

}  // namespace hawser::pipe
