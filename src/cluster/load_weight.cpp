#include "cluster/load_weight.h"

#include <algorithm>
#include <cmath>

#include "cluster/backend.h"
#include "cluster/list_update.h"

namespace hawser::cluster {

void LoadWeight::observe(const LoadReport& report, Time now, const LoadWeightOptions& options) noexcept {
  const double part = report.application_utilization > 0 ? report.application_utilization : report.cpu_utilization;
  if (!(part > 0) || !(report.calls_per_second > 0)) return;
  const double errors = std::min(report.errors_per_second / report.calls_per_second, 1.0);
  const double weight = report.calls_per_second / (part + errors * options.error_penalty);
  if (!std::isfinite(weight) || weight <= 0) return;
  // A server without calls for so long begins again.
  if (weight_ == 0 || now - last_ >= options.expiry) first_ = now;
  weight_ = weight;
  last_ = now;
}

std::optional<double> LoadWeight::value(Time now, const LoadWeightOptions& options) const noexcept {
  if (weight_ == 0 || now - first_ < options.blackout || now - last_ >= options.expiry) return std::nullopt;
  return weight_;
}

bool LoadWeightUpdate::work(std::span<Backend* const> backends, const LoadWeightOptions& options) {
  const std::size_t end = std::min(backends.size(), next_ + ListUpdate::endpoints_of_step);
  if (!collected_) {
    known_.reserve(backends.size());
    for (; next_ < end; ++next_) {
      list_weights_ += backends[next_]->endpoint.weight;
      if (const auto weight = backends[next_]->load.value(now_, options)) known_.push_back(*weight);
    }
    if (next_ < backends.size()) return true;
    if (known_.size() >= 2) {
      const auto middle = known_.begin() + static_cast<std::ptrdiff_t>(known_.size() / 2);
      std::ranges::nth_element(known_, middle);
      median_ = *middle;
    }
    collected_ = true;
    next_ = 0;
    return true;
  }
  // In proportion to the weights of the list, so that turns by either may follow each other.
  const double mean = list_weights_ / static_cast<double>(backends.size());
  for (; next_ < end; ++next_) {
    Backend& backend = *backends[next_];
    const auto weight = median_ ? backend.load.value(now_, options) : std::nullopt;
    const double ratio = weight ? std::clamp(*weight / *median_, 1 / ratio_max, ratio_max) : 1;
    backend.load_weight = median_ ? mean * ratio : 0;
  }
  return next_ < backends.size();
}

}  // namespace hawser::cluster
