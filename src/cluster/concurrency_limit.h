#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "hawser/concurrency_limit.h"
#include "hawser/error.h"
#include "hawser/time.h"

namespace hawser::cluster {

// The limit of LimitOptions. No I/O, no clock.
class ConcurrencyLimit {
 public:
  // Fails with `invalid_argument` if a value is out of its range.
  static Result<void> check(const LimitOptions& options);
  ConcurrencyLimit(const LimitOptions& options, std::uint64_t seed) noexcept;  // `options` have been checked.

  unsigned limit() const noexcept { return limit_now_; }
  // A call has ended that was not refused. `in_flight` includes it.
  void observe(Duration latency, unsigned in_flight, Time now) noexcept;

 private:
  void end_period(Time now) noexcept;
  void follow(double latency, bool reached) noexcept;
  Duration next_probe() noexcept;
  void set_limit(double limit) noexcept;

  const LimitOptions options_;
  Random random_;
  double limit_;
  unsigned limit_now_;                       // Half of limit_ while it is probed.
  double reference_ = 0;                     // Mean latency in nanoseconds that counts as fast. 0: unknown.
  unsigned probing_ = 0;                     // Periods until the end of the probe. 0: none.
  Duration reached_for_ = Duration::zero();  // Time for which calls reached the limit, since the last probe.
  Duration probe_after_;
  bool starting_ = true;  // Calls have not yet become slower at any limit.
  // The present period.
  Time began_{};
  double latencies_ = 0;  // Sum in nanoseconds.
  unsigned count_ = 0;
  unsigned in_flight_max_ = 0;
};

}  // namespace hawser::cluster
