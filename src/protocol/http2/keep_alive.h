#pragma once

#include <cstddef>

#include "hawser/loop.h"
#include "hawser/time.h"
#include "hawser/timer.h"
#include "protocol/http2/peer_silence.h"

namespace hawser::protocol::http2 {

// Tests a connection on which nothing arrives by a PING. Loop's thread only.
class KeepAlive {
 public:
  class Connection {
   public:
    // False while the peer need not send anything.
    virtual bool expects_bytes() const noexcept = 0;
    virtual void send_ping() = 0;
    // The peer has not answered the PING within an interval. The connection ends, with this object or without it.
    virtual void on_silent_peer() = 0;

   protected:
    ~Connection() = default;
  };

  KeepAlive(Loop& loop, Connection& connection) : loop_(loop), connection_(connection) {}

  // Tests once in each `interval` from now on; `forever`: not at all.
  void start(Duration interval) {
    interval_ = interval;
    silence_.restart();
    timer_.stop();
    if (interval_ < forever) timer_.start(loop_, loop_.after(interval_));
  }
  void stop() noexcept { timer_.stop(); }
  void received(std::size_t bytes) noexcept { silence_.received(bytes); }

 private:
  void check() {
    const PeerSilence::Verdict verdict = silence_.check(connection_.expects_bytes());
    if (verdict == PeerSilence::Verdict::dead) return connection_.on_silent_peer();
    timer_.start(loop_, loop_.after(interval_));
    if (verdict == PeerSilence::Verdict::quiet) connection_.send_ping();
  }

  Loop& loop_;
  Connection& connection_;
  Duration interval_ = forever;
  PeerSilence silence_;
  MemberTimer<&KeepAlive::check> timer_{*this};
};

}  // namespace hawser::protocol::http2
