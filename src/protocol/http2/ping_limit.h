#pragma once

#include "hawser/time.h"

namespace hawser::protocol::http2 {

// Counts the PINGs of a client that follow the one before too soon. A peer may send many PINGs only if it is sent
// something meanwhile: clients of gRPC measure the bandwidth so. No clock.
class PingLimit {
 public:
  // `interval_min` is 0 or less: any number is allowed.
  PingLimit(Duration interval_min, unsigned strikes_max) noexcept
      : interval_min_(interval_min), strikes_max_(strikes_max) {}

  // Returns false if the peer has sent one PING too many.
  bool on_ping(Time now) noexcept {
    if (interval_min_ <= Duration::zero()) return true;
    const bool soon = pinged_ && now - last_ < interval_min_;
    pinged_ = true;
    last_ = now;
    return !soon || ++strikes_ <= strikes_max_;
  }
  // Headers or data were sent to the peer.
  void on_sent() noexcept { strikes_ = 0; }

 private:
  const Duration interval_min_;
  const unsigned strikes_max_;
  Time last_{};
  bool pinged_ = false;
  unsigned strikes_ = 0;
};

}  // namespace hawser::protocol::http2
