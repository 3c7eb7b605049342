#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/results/histogram.h"
#include "bench/run/cell.h"

namespace hawser::bench {

// The warm-up of a cell lasts this fraction of the counted time, but at least the minimum below. It is extended, up to
// the maximum, until every call in flight has had a reply.
inline constexpr double warm_up_fraction = 0.1;
inline constexpr double warm_up_s_min = 0.2;
inline constexpr double warm_up_s_max = 15;

// Counts the calls of a client that uses no loop of Hawser, in three phases: warm-up, counted time, end. Time is only
// what the caller passes. Used by one thread at a time.
class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  // `calls` will be in flight at once. `server` is the server's process, whose processor time is counted too, or -1.
  Meter(double seconds, unsigned calls, pid_t server);

  // Records `count` successful calls that began at `start` and ended at `now`.
  void record(Clock::time_point start, Clock::time_point now, std::uint64_t count = 1) {
    if (counting_) latencies_ns_.record(static_cast<std::uint64_t>((now - start).count()), count);
  }
  // Records the first reply of `calls` more of the calls in flight.
  void warm(unsigned calls = 1) noexcept { cold_ -= cold_ < calls ? cold_ : calls; }
  void fail(std::string text);
  // Enters the next phase when it is time. Returns false after the last one.
  bool go_on(Clock::time_point now) {
    if (now < next_change_) [[likely]]
      return !over_;
    return change(now);
  }

  bool over() const noexcept { return over_; }
  // Valid after go_on() has returned false.
  CellResult result(const Cell& cell) const;

 private:
  bool change(Clock::time_point now);

  const double seconds_;
  const unsigned calls_;
  const pid_t server_;
  const Clock::time_point start_;
  Clock::time_point next_change_;
  Clock::time_point counting_since_{};
  std::uint64_t cold_;
  bool counting_ = false;
  bool over_ = false;
  double counted_s_ = 0;
  double own_cpu_s_ = 0;  // Processor time of this process when counting began.
  double server_cpu_s_ = 0;
  std::uint64_t errors_ = 0;
  std::string first_error_;
  LatencyHistogram latencies_ns_;
};

// Returns the user and system time of all threads of a process, or 0 if it is not known.
double processor_time_s(pid_t process);
// Fills in the percentiles and the number of `latencies_ns`.
void fill_latencies(CellResult& result, const LatencyHistogram& latencies_ns);

}  // namespace hawser::bench
