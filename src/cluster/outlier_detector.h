#pragma once

#include <cstddef>
#include <vector>

#include "cluster/backend.h"
#include "hawser/balancing.h"

namespace hawser::cluster {

// Ejects backends that fail more often than others, by the counts of an interval (gRFC A50, which follows Envoy).
class OutlierDetector {
 public:
  explicit OutlierDetector(const OutlierOptions& options) : options_(options) {}

  // Judges the interval if it has ended: ejects backends, and begins a new interval. Returns true then.
  bool judge(const std::vector<Backend*>& backends, Time now);

 private:
  void eject_by_success_rate(const std::vector<Backend*>& backends, Time now);
  void eject_by_failures(const std::vector<Backend*>& backends, Time now);
  void eject(Backend& backend, Time now);

  const OutlierOptions options_;
  Time interval_began_{};
  std::size_t ejections_left_ = 0;
};

}  // namespace hawser::cluster
