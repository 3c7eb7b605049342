#pragma once

#include <cstddef>
#include <memory>

#include "hawser/metrics.h"
#include "hawser/server.h"

namespace hawser {

// Methods with samples of their own, in the order of their registration. The others are summed in samples with the
// label overflow="true".
inline constexpr std::size_t metric_methods_max = 250;

// Adds the counters of `server`, its methods and its loops to each render() of `registry`, with these labels on every
// sample, until the returned object is destroyed. Destroy it before the server. The names begin with "hawser_server_"
// and "hawser_loop_"; methods that have not been called have no samples. docs/operations.md lists them. A registry with
// the default series_max drops outcomes if many methods have many of them: give it metric_methods_max * 14.
[[nodiscard]] std::shared_ptr<void> collect_metrics(MetricRegistry& registry, const Server& server,
                                                    MetricLabels labels = {});

}  // namespace hawser
