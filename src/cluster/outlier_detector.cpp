#include "cluster/outlier_detector.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hawser::cluster {
namespace {

double success_rate(const Backend& backend) noexcept {
  return backend.successes / (static_cast<double>(backend.successes) + backend.failures);
}

std::vector<Backend*> with_calls(const std::vector<Backend*>& backends, std::uint32_t calls_min) {
  std::vector<Backend*> enough;
  std::ranges::copy_if(backends, std::back_inserter(enough), [&](const Backend* backend) {
    return backend->successes + backend->failures >= std::max(1U, calls_min);
  });
  return enough;
}

}  // namespace

bool OutlierDetector::judge(const std::vector<Backend*>& backends, Time now) {
  if (!options_.enabled || (interval_began_ != Time() && now - interval_began_ < options_.interval)) return false;
  ejections_ = {};
  if (interval_began_ != Time()) {
    const auto ejected = static_cast<std::size_t>(
        std::ranges::count_if(backends, [&](const Backend* backend) { return backend->ejected(now); }));
    const auto most = static_cast<std::size_t>(static_cast<double>(backends.size()) * options_.excluded_max);
    ejections_left_ = std::max<std::size_t>(most, 1) - std::min(ejected, std::max<std::size_t>(most, 1));
    eject_by_success_rate(backends, now);
    eject_by_failures(backends, now);
  }
  for (Backend* const backend : backends) {
    // The next ejection of a backend that was not ejected in the whole interval is shorter again.
    if (backend->ejected_until <= interval_began_ && backend->ejections > 0) --backend->ejections;
    backend->successes = backend->failures = 0;
  }
  interval_began_ = now;
  return true;
}

void OutlierDetector::eject_by_success_rate(const std::vector<Backend*>& backends, Time now) {
  if (options_.success_rate_enforced == 0) return;
  const std::vector<Backend*> judged = with_calls(backends, options_.success_rate_calls_min);
  if (judged.size() < std::max<std::size_t>(options_.endpoints_min, 1)) return;
  double sum = 0;
  double squares = 0;
  for (const Backend* const backend : judged) {
    const double rate = success_rate(*backend);
    sum += rate;
    squares += rate * rate;
  }
  const auto count = static_cast<double>(judged.size());
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  for (Backend* const backend : judged) {
    if (success_rate(*backend) < mean - options_.success_rate_deviations * deviation) {
      eject(*backend, 0, options_.success_rate_enforced, now);
    }
  }
}

void OutlierDetector::eject_by_failures(const std::vector<Backend*>& backends, Time now) {
  if (options_.failure_enforced == 0) return;
  const std::vector<Backend*> judged = with_calls(backends, options_.failure_calls_min);
  if (judged.size() < std::max<std::size_t>(options_.failure_endpoints_min, 1)) return;
  for (Backend* const backend : judged) {
    if (1 - success_rate(*backend) >= options_.failure_part) {
      eject(*backend, 1, options_.failure_enforced, now);
    }
  }
}

void OutlierDetector::eject(Backend& backend, std::size_t rule, double enforced, Time now) {
  if (backend.ejected(now)) return;
  const bool enforces = ejections_left_ != 0 && random_.chance(enforced);
  ++(enforces ? ejections_.enforced : ejections_.unenforced)[rule];
  if (!enforces) return;
  --ejections_left_;
  ++backend.ejections;
  const Duration most = std::min(std::max(options_.base_time, options_.time_max), Time::max() - now);
  const bool longer = options_.base_time > most / backend.ejections;  // The product may overflow.
  backend.ejected_until = now + (longer ? most : options_.base_time * backend.ejections);
}

}  // namespace hawser::cluster
