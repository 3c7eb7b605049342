#pragma once

#include <cassert>
#include <cstdint>

namespace hawser::transport::rdma {

// How far a connection over a queue pair has come, from its handshake to its end.
class RdmaState {
 public:
  enum class Phase : std::uint8_t {
    unreserved,  // It holds nothing.
    reserved,    // It is counted towards queue_pairs_max. The queue pair is being made.
    made,        // The queue pair exists.
    connecting,  // The queue pair is being connected, or that has failed.
    connected,   // Messages can be exchanged.
    closing,     // Nothing more is sent, and the peer is informed.
    ended,       // The queue pair is being drained, or there was none.
  };

  Phase phase() const noexcept { return phase_; }
  // It is counted, and ends with more than its memory.
  bool reserved() const noexcept { return phase_ != Phase::unreserved && !ended(); }
  bool ended() const noexcept { return phase_ == Phase::ended; }

  // The events. Each may happen only in phases that allow it: others are mistakes of the caller, which an assertion
  // reports.
  void enter(Phase next) noexcept {
    assert(allows(phase_, next));
    phase_ = next;
  }

  static constexpr bool allows(Phase from, Phase to) noexcept {
    switch (from) {
      case Phase::unreserved: return to == Phase::reserved || to == Phase::ended;
      case Phase::reserved: return to == Phase::made || to == Phase::ended;
      case Phase::made: return to == Phase::connecting || to == Phase::ended;
      case Phase::connecting: return to == Phase::connected || to == Phase::ended;
      case Phase::connected: return to == Phase::closing || to == Phase::ended;
      case Phase::closing: return to == Phase::ended;
      case Phase::ended: break;
    }
    return false;
  }

 private:
  Phase phase_ = Phase::unreserved;
};

}  // namespace hawser::transport::rdma
