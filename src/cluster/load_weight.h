#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "hawser/balancing.h"
#include "hawser/load_reports.h"
#include "hawser/time.h"

namespace hawser::cluster {

struct Backend;

// The weight of one backend by the reports of its server (gRFC A58): the calls per second that it could serve.
class LoadWeight {
 public:
  // A report from which no weight follows, because it has no calls or no utilisation, is ignored.
  void observe(const LoadReport& report, Time now, const LoadWeightOptions& options) noexcept;
  // Begins again, such as for a new connection.
  void reset() noexcept { *this = {}; }
  // Empty: no report, the first one is too young, or the last one is too old.
  std::optional<double> value(Time now, const LoadWeightOptions& options) const noexcept;

 private:
  double weight_ = 0;
  Time first_{};
  Time last_{};
};

// Gives the backends of one priority their weights by load, in steps. A weight counts as at least a tenth and at most
// ten times the median, so that a server that reports nonsense neither gets all calls nor none.
class LoadWeightUpdate {
 public:
  static constexpr double ratio_max = 10;
  explicit LoadWeightUpdate(Time now) noexcept : now_(now) {}
  // Does a bounded part of the work. True if there is more. The backends are the same at each call.
  bool work(std::span<Backend* const> backends, const LoadWeightOptions& options);

 private:
  const Time now_;
  std::size_t next_ = 0;
  bool collected_ = false;
  double list_weights_ = 0;  // Their sum.
  std::vector<double> known_;
  std::optional<double> median_;  // Empty: fewer than two weights are known.
};

}  // namespace hawser::cluster
