#include "bench/load/meter.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hawser::bench {
namespace {

constexpr double retry_s = 0.02;  // Period of checking a condition again.

Meter::Clock::duration counted_time(double seconds) {
  return std::chrono::duration_cast<Meter::Clock::duration>(std::chrono::duration<double>(seconds));
}
double seconds_between(Meter::Clock::time_point begin, Meter::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

double processor_time_s(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (process < 0 || clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void fill_latencies(CellResult& result, const LatencyHistogram& latencies_ns) {
  const auto microseconds = [&](double part) { return static_cast<double>(latencies_ns.quantile(part)) / 1e3; };
  result.calls = latencies_ns.count();
  result.p50_us = microseconds(0.5);
  result.p90_us = microseconds(0.9);
  result.p99_us = microseconds(0.99);
  result.p999_us = microseconds(0.999);
}

Meter::Meter(double seconds, unsigned calls, pid_t server)
    : seconds_(seconds),
      calls_(calls),
      server_(server),
      start_(Clock::now()),
      next_change_(start_ + counted_time(std::max(warm_up_s_min, warm_up_fraction * seconds))),
      cold_(calls) {}

void Meter::fail(std::string text) {
  if (errors_++ == 0) first_error_ = std::move(text);
}

bool Meter::change(Clock::time_point now) {
  if (over_) return false;
  next_change_ = now + counted_time(retry_s);
  if (!counting_) {
    if (cold_ > 0 && seconds_between(start_, now) < warm_up_s_max) return true;
    counting_ = true;
    own_cpu_s_ = processor_time_s(getpid());
    server_cpu_s_ = processor_time_s(server_);
    counting_since_ = now;
    next_change_ = counting_since_ + counted_time(seconds_);
    return true;
  }
  // Counting lasts longer if no call has ended by then.
  if (latencies_ns_.count() == 0 && seconds_between(counting_since_, now) < seconds_ + warm_up_s_max) return true;
  counting_ = false;
  over_ = true;
  counted_s_ = seconds_between(counting_since_, now);
  own_cpu_s_ = processor_time_s(getpid()) - own_cpu_s_;
  server_cpu_s_ = processor_time_s(server_) - server_cpu_s_;
  return false;
}

CellResult Meter::result(const Cell& cell) const {
  CellResult result{.cell = cell, .seconds = counted_s_, .errors = errors_};
  fill_latencies(result, latencies_ns_);
  result.server_cpu_s = server_cpu_s_;
  result.client_cpu_s = own_cpu_s_;
  result.calls_at_once = calls_;
  result.first_error = first_error_;
  return result;
}

}  // namespace hawser::bench
