#include "cluster/cluster_metrics.h"

#include <new>
#include <utility>

#include "hawser/cluster_monitor.h"

namespace hawser::cluster {
namespace {

constexpr std::string_view other_methods = "other";  // As gRPC names those that are not counted one by one.
constexpr std::array<std::string_view, 4> reach_names = {"idle", "connecting", "ready", "failed"};

}  // namespace

ClusterMetrics::ClusterMetrics(MetricRegistry& registry, std::string target)
    : registry_(registry),
      target_(std::move(target)),
      connected_(registry.counter(
          {"grpc_subchannel_connection_attempts_succeeded", "First connections to endpoints that were opened."},
          {{"grpc_target", target_}})),
      failed_(registry.counter(
          {"grpc_subchannel_connection_attempts_failed", "First connections to endpoints that could not be opened."},
          {{"grpc_target", target_}})),
      disconnected_(registry.counter({"grpc_subchannel_disconnections",
                                      "Endpoints whose last connection was lost, or closed because it was idle."},
                                     {{"grpc_target", target_}})) {
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    endpoints_[i] = &registry.gauge({"hawser_cluster_endpoints", "Endpoints that the balancing uses, by state."},
                                    {{"grpc_target", target_}, {"state", std::string(reach_names[i])}});
  }
}

MetricLabels ClusterMetrics::labels_of(std::string_view method) const {
  return {{"grpc_method", std::string(method)}, {"grpc_target", target_}};
}

ClusterMetrics::Method& ClusterMetrics::of(std::string_view method) {
  if (const auto found = methods_.find(method); found != methods_.end()) return found->second;
  if (methods_.size() >= ClusterMonitor::methods_max && method != other_methods) return of(other_methods);
  Counter& started =
      registry_.counter({"grpc_client_attempt_started", "Attempts of calls that were begun."}, labels_of(method));
  return methods_.emplace(std::string(method), Method{.started = &started}).first->second;
}

MetricLabels ClusterMetrics::known_labels_of(std::string_view method) const {
  return labels_of(methods_.contains(method) ? method : other_methods);
}

const ClusterMetrics::TimedWork ClusterMetrics::attempts_timed = {
    .durations = &Method::attempts,
    .metric = "grpc_client_attempt_duration_seconds",
    .help = "Time of attempts of calls, from the choice of an endpoint on."};
const ClusterMetrics::TimedWork ClusterMetrics::calls_timed = {
    .durations = &Method::calls,
    .metric = "grpc_client_call_duration_seconds",
    .help = "Time of calls with all their attempts and pauses."};

Histogram& ClusterMetrics::durations_of(const TimedWork& work, std::string_view method, std::int32_t status) {
  Histogram*& durations = (of(method).*work.durations)[static_cast<std::size_t>(status)];
  if (durations == nullptr) {
    MetricLabels labels = known_labels_of(method);
    labels.emplace_back("grpc_status", name_of_status(status));
    durations = &registry_.histogram({work.metric, work.help, "seconds"}, labels);
  }
  return *durations;
}

const ClusterMetrics::CallPart ClusterMetrics::retries_counted = {
    .histogram = &Method::retries,
    .metric = "grpc_client_call_retries",
    .help = "Retries by the policy of calls that were made again.",
    .unit = ""};
const ClusterMetrics::CallPart ClusterMetrics::pauses_timed = {.histogram = &Method::pauses,
                                                               .metric = "grpc_client_call_retry_delay_seconds",
                                                               .help = "Pauses before the retries of a call, together.",
                                                               .unit = "seconds"};
const ClusterMetrics::CallPart ClusterMetrics::copies_counted = {.histogram = &Method::copies,
                                                                 .metric = "grpc_client_call_hedges",
                                                                 .help = "Copies of calls that had at least one.",
                                                                 .unit = ""};

Histogram& ClusterMetrics::part_of(const CallPart& part, std::string_view method) {
  Histogram*& histogram = of(method).*part.histogram;
  if (histogram == nullptr)
    histogram = &registry_.histogram({part.metric, part.help, part.unit}, known_labels_of(method));
  return *histogram;
}

void ClusterMetrics::begin_attempt(std::string_view method) noexcept {
  try {
    of(method).started->add();
  } catch (const std::bad_alloc&) {
    return;
  }
}

void ClusterMetrics::end_attempt(std::string_view method, std::int32_t status, Duration time) noexcept {
  try {
    durations_of(attempts_timed, method, status).record(time);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void ClusterMetrics::end_call(std::string_view method, std::int32_t status, const CallCosts& costs) noexcept {
  try {
    durations_of(calls_timed, method, status).record(costs.time);
    if (costs.copies != 0) part_of(copies_counted, method).record(std::uint64_t{costs.copies});
    if (costs.retries == 0) return;
    part_of(retries_counted, method).record(std::uint64_t{costs.retries});
    part_of(pauses_timed, method).record(costs.pauses);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void ClusterMetrics::note_ejections(const Ejections& ejections) noexcept {
  const auto add = [&](std::string_view outcome, std::string_view help, std::string_view by, std::size_t count) {
    if (count == 0) return;
    registry_
        .counter({"grpc_lb_outlier_detection_ejections_" + std::string(outcome), std::string(help)},
                 {{"grpc_target", target_}, {"grpc_lb_outlier_detection_detection_method", std::string(by)}})
        .add(count);
  };
  try {
    for (std::size_t i = 0; i < Ejections::names.size(); ++i) {
      add("enforced", "Endpoints that were excluded as outliers.", Ejections::names[i], ejections.enforced[i]);
      add("unenforced", "Outliers that were not excluded, because as many endpoints are as OutlierOptions permits.",
          Ejections::names[i], ejections.unenforced[i]);
    }
  } catch (const std::bad_alloc&) {
    return;
  }
}

void ClusterMetrics::show(const Counts& endpoints) noexcept {
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i] == shown_[i]) continue;
    endpoints_[i]->add(static_cast<double>(endpoints[i]) - static_cast<double>(shown_[i]));
    shown_[i] = endpoints[i];
  }
}

}  // namespace hawser::cluster
