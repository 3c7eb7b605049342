#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "cluster/backend.h"
#include "hawser/balancing.h"

namespace hawser::cluster {

// Backends that were ejected in an interval, or that were not although they should have been, by the rule.
struct Ejections {
  static constexpr std::array<std::string_view, 2> names = {"success_rate", "failure_percentage"};
  std::array<std::size_t, 2> enforced{};
  std::array<std::size_t, 2> unenforced{};
};

// Ejects backends that fail more often than others, by the counts of an interval (gRFC A50, which follows Envoy).
class OutlierDetector {
 public:
  OutlierDetector(const OutlierOptions& options, std::uint64_t seed) : options_(options), random_(seed) {}

  // Replaces the rules. Neither the present interval nor an ejection is cut short. Calls without rules are not judged.
  void set_options(const OutlierOptions& options) {
    if (!options.enabled) interval_began_ = {};
    options_ = options;
  }

  // Judges the interval if it has ended: ejects backends, and begins a new interval. Returns true then.
  bool judge(const std::vector<Backend*>& backends, Time now);
  // The ejections of the interval that was judged last.
  const Ejections& ejections() const noexcept { return ejections_; }

 private:
  void eject_by_success_rate(const std::vector<Backend*>& backends, Time now);
  void eject_by_failures(const std::vector<Backend*>& backends, Time now);
  void eject(Backend& backend, std::size_t rule, double enforced, Time now);

  OutlierOptions options_;
  Random random_;
  Time interval_began_{};
  std::size_t ejections_left_ = 0;
  Ejections ejections_;
};

}  // namespace hawser::cluster
