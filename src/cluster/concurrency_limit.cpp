#include "cluster/concurrency_limit.h"

#include "base/try.h"

namespace hawser::cluster {
namespace {

constexpr Duration period = std::chrono::milliseconds(100);
constexpr Duration period_counted_max = std::chrono::seconds(1);  // A longer period had few calls.
constexpr unsigned period_calls_min = 10;
constexpr unsigned probe_periods = 2;  // Calls of before end in the first one.
// The aim is higher than the limit by this number if calls reach the limit. Until calls become slower for the first
// time, the aim is twice the limit.
constexpr double growth = 4;
constexpr double smoothing = 0.2;  // Part of the way to the aim, in a period.
constexpr double reached_part = 0.9;
// Parts by which the reference follows a lower latency, and a higher one.
constexpr double reference_down = 0.1;
constexpr double reference_up = 1.0 / 60;

Result<void> limit_in_range(bool holds, const char* text) {
  if (holds) return {};
  return fail(ErrorCode::invalid_argument, std::string("LimitOptions::") + text);
}

}  // namespace

Result<void> ConcurrencyLimit::check(const LimitOptions& options) {
  TRY(limit_in_range(options.min >= 1, "min is 0: it must be at least 1"));
  TRY(limit_in_range(options.min <= options.initial && options.initial <= options.max,
                     "initial must be from min to max"));
  TRY(limit_in_range(options.tolerance > 1, "tolerance must be above 1"));
  return limit_in_range(options.probe_interval > Duration::zero(), "probe_interval must be positive");
}

ConcurrencyLimit::ConcurrencyLimit(const LimitOptions& options, std::uint64_t seed) noexcept
    : options_(options), random_(seed), limit_(options.initial), limit_now_(options.initial) {
  probe_after_ = next_probe();
}

Duration ConcurrencyLimit::next_probe() noexcept {
  const double part = 0.75 + static_cast<double>(random_.below(1U << 20)) / (1U << 21);
  return Duration(static_cast<Duration::rep>(static_cast<double>(options_.probe_interval.count()) * part));
}

void ConcurrencyLimit::observe(Duration latency, unsigned in_flight, Time now) noexcept {
  if (count_ == 0) began_ = now;  // The first calls of a busy time are the fastest ones: they alone are not a measure.
  latencies_ += static_cast<double>(std::max<Duration::rep>(latency.count(), 1));
  ++count_;
  in_flight_max_ = std::max(in_flight_max_, in_flight);
  if (count_ >= period_calls_min && now - began_ >= period) end_period(now);
}

void ConcurrencyLimit::end_period(Time now) noexcept {
  const double latency = latencies_ / count_;
  const bool reached = in_flight_max_ >= reached_part * limit_now_;
  if (probing_ != 0) {
    if (--probing_ == 0) {
      reference_ = latency;
      reached_for_ = Duration::zero();
      probe_after_ = next_probe();
      set_limit(limit_);
    }
  } else {
    if (reached) reached_for_ += std::min(now - began_, period_counted_max);
    if (reached && reached_for_ >= probe_after_) {
      probing_ = probe_periods;
      limit_now_ = std::max(options_.min, limit_now_ / 2);
    } else {
      follow(latency, reached);
    }
  }
  latencies_ = 0;
  count_ = in_flight_max_ = 0;
}

// A latency under overload must not become the reference: then the limit would grow for ever. So only the probe raises
// the reference while calls reach the limit.
void ConcurrencyLimit::follow(double latency, bool reached) noexcept {
  if (reference_ == 0) {
    reference_ = latency;
  } else if (latency < reference_ || !reached) {
    reference_ += (latency - reference_) * (latency < reference_ ? reference_down : reference_up);
  }
  const double gradient = std::clamp(options_.tolerance * reference_ / latency, 0.5, 1.0);
  if (gradient < 1) starting_ = false;
  const double aim = limit_ * gradient + (!reached ? 0 : starting_ ? limit_ : growth);
  set_limit(limit_ + (aim - limit_) * smoothing);
}

void ConcurrencyLimit::set_limit(double limit) noexcept {
  limit_ = std::clamp<double>(limit, options_.min, options_.max);
  limit_now_ = static_cast<unsigned>(limit_);
}

}  // namespace hawser::cluster
