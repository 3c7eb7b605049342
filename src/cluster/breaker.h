#pragma once

#include <algorithm>
#include <cstdint>

#include "hawser/balancing.h"
#include "hawser/time.h"

namespace hawser::cluster {

// Excludes a backend after failures in a row, and lets one call at a time try whether it has recovered. No I/O, no
// clock.
class Breaker {
 public:
  bool closed() const noexcept { return opened_at_ == Time(); }
  // True if a call may be sent: the breaker is closed, or its time has passed and no other call tries the backend.
  bool admits(Time now) const noexcept { return closed() || (now >= until_ && tried_at_ == Time()); }
  Duration open_for(Time now) const noexcept { return closed() || now >= until_ ? Duration::zero() : until_ - now; }

  void begin_call(Time now) noexcept {
    if (!closed() && now >= until_) tried_at_ = now;
  }
  // `began`: when the call was sent.
  void succeed(Time began) noexcept {
    if (closed()) {
      failures_ = 0;
    } else if (began >= opened_at_) {
      closed_at_ = began;
      opened_at_ = tried_at_ = Time();
      failures_ = 0;
    }
  }
  void fail(const BreakerOptions& options, Time began, Time now) noexcept {
    if (options.failures_max == 0) return;
    if (closed()) {
      if (++failures_ < options.failures_max) return;
      if (now - closed_at_ > options.time_max) openings_ = 0;
    } else if (tried_at_ == Time() || began < tried_at_) {
      return;  // A call from before the breaker opened.
    }
    openings_ = std::min(openings_ + 1, 20U);
    opened_at_ = now;
    tried_at_ = Time();
    until_ = now + std::min(options.base_time * (std::int64_t{1} << (openings_ - 1)), options.time_max);
  }
  // The call that tried the backend ended without a judgement.
  void forget(Time began) noexcept {
    if (began >= tried_at_) tried_at_ = Time();
  }

 private:
  Time opened_at_{};            // Time(): closed.
  Time until_{};                // From then on one call may try the backend.
  Time tried_at_{};             // When the call began that tries the backend. Time(): none.
  Time closed_at_{};            // When the call began that closed the breaker last.
  std::uint32_t failures_ = 0;  // In a row, while closed.
  std::uint32_t openings_ = 0;  // Without a longer time between them.
};

}  // namespace hawser::cluster
