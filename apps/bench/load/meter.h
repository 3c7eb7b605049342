#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/results/histogram.h"
#include "bench/run/cell.h"

namespace hawser::bench {

// A cell's warm-up lasts this part of the counted time, at least so long, and at most so long until every call in
// flight has had a reply.
inline constexpr double warm_up_fraction = 0.1;
inline constexpr double warm_up_s_min = 0.2;
inline constexpr double warm_up_s_max = 15;

// Counts the calls of a client that has no loop of ours: warm-up, counted time, end. It goes by the times that it is
// told. One thread at a time.
class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  // `calls` will be in flight at once. `server` is the server's process, whose time is counted too, or -1.
  Meter(double seconds, unsigned calls, pid_t server);

  // `count` calls have ended well at `now` that began at `start`.
  void record(Clock::time_point start, Clock::time_point now, std::uint64_t count = 1) {
    if (counting_) latencies_ns_.record(static_cast<std::uint64_t>((now - start).count()), count);
  }
  // One more of the calls in flight has had its first reply.
  void warm(unsigned calls = 1) noexcept { cold_ -= cold_ < calls ? cold_ : calls; }
  void fail(std::string text);
  // Moves on where it is time; false when all is over.
  bool go_on(Clock::time_point now) {
    if (now < next_change_) [[likely]]
      return !over_;
    return change(now);
  }

  bool over() const noexcept { return over_; }
  // Valid once all is over.
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
  double own_cpu_s_ = 0;  // While counting: as it was at the begin.
  double server_cpu_s_ = 0;
  std::uint64_t errors_ = 0;
  std::string first_error_;
  Histogram latencies_ns_;
};

// Processor time, user and system, of all threads of a process, or 0 if it can't be known.
double processor_time_s(pid_t process);
// The percentiles of `latencies_ns`, and how many they are.
void fill_latencies(CellResult& result, const Histogram& latencies_ns);

}  // namespace hawser::bench
