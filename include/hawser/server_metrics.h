#pragma once

#include <memory>

#include "hawser/metrics.h"
#include "hawser/server.h"

namespace hawser {

// Adds the counters of `server` (ServerCounters) to each render() of `registry`, with these labels on every sample,
// until the returned object is destroyed. Destroy it before the server. The names begin with "hawser_server_".
[[nodiscard]] std::shared_ptr<void> collect_metrics(MetricRegistry& registry, const Server& server,
                                                    MetricLabels labels = {});

}  // namespace hawser
