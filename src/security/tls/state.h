#pragma once

#include <cassert>
#include <cstdint>

namespace hawser::security::tls {

// How far a stream within TLS has come, from the handshake to its end.
class TlsState {
 public:
  enum class Phase : std::uint8_t {
    shaking,        // The handshake is not complete.
    stepping,       // Likewise, and another thread performs a step of it, which uses the session.
    open,           // The handshake is complete.
    half_closed,    // The peer has ended its direction, and the sink still sends.
    refused,        // A server's handshake has failed, and the client has not ended the connection yet.
    ended_shaking,  // The end of each of the phases above. The sink has been notified, or will be by poll().
    ended_stepping,
    ended_open,
    ended_refused,
  };
  // The progress of finish().
  enum class Finish : std::uint8_t { not_called, wanted, sent };

  Phase phase() const noexcept { return phase_; }
  bool stepping() const noexcept { return phase_ == Phase::stepping || phase_ == Phase::ended_stepping; }
  // The handshake was completed.
  bool opened() const noexcept { return live() || phase_ == Phase::ended_open; }
  // Data can be exchanged.
  bool live() const noexcept { return phase_ == Phase::open || phase_ == Phase::half_closed; }
  bool half_closed() const noexcept { return phase_ == Phase::half_closed; }
  bool refused() const noexcept { return phase_ == Phase::refused; }
  bool ended() const noexcept { return phase_ >= Phase::ended_shaking; }
  bool finish_wanted() const noexcept { return finish_ != Finish::not_called; }
  bool finish_sent() const noexcept { return finish_ == Finish::sent; }

  // The events. Each may happen only in phases that allow it: others are mistakes of the caller, which an assertion
  // reports.
  void begin_step() noexcept { enter(Phase::stepping); }
  void end_step() noexcept { enter(ended() ? Phase::ended_shaking : Phase::shaking); }
  void open() noexcept { enter(Phase::open); }
  void half_close() noexcept { enter(Phase::half_closed); }
  void refuse() noexcept {
    enter(Phase::refused);
    want_finish();
  }
  void end() noexcept {
    enter(live()                      ? Phase::ended_open
          : phase_ == Phase::stepping ? Phase::ended_stepping
          : phase_ == Phase::refused  ? Phase::ended_refused
                                      : Phase::ended_shaking);
  }
  void want_finish() noexcept {
    if (finish_ == Finish::not_called) finish_ = Finish::wanted;
  }
  // True once, when the stream below may end: the caller ends it.
  bool send_finish() noexcept {
    if (finish_ != Finish::wanted || !(opened() || phase_ == Phase::refused || phase_ == Phase::ended_refused)) {
      return false;
    }
    finish_ = Finish::sent;
    return true;
  }

  static constexpr bool allows(Phase from, Phase to) noexcept {
    switch (from) {
      case Phase::shaking:
        return to == Phase::stepping || to == Phase::open || to == Phase::refused || to == Phase::ended_shaking;
      case Phase::stepping: return to == Phase::shaking || to == Phase::ended_stepping;
      case Phase::open: return to == Phase::half_closed || to == Phase::ended_open;
      case Phase::half_closed: return to == Phase::ended_open;
      case Phase::refused: return to == Phase::ended_refused;
      case Phase::ended_stepping: return to == Phase::ended_shaking;
      case Phase::ended_shaking:
      case Phase::ended_open:
      case Phase::ended_refused: break;
    }
    return false;
  }

 private:
  void enter(Phase next) noexcept {
    assert(allows(phase_, next));
    phase_ = next;
  }

  Phase phase_ = Phase::shaking;
  Finish finish_ = Finish::not_called;
};

}  // namespace hawser::security::tls
