#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cluster/outlier_detector.h"
#include "cluster/status_name.h"
#include "hawser/metrics.h"
#include "hawser/time.h"

namespace hawser::cluster {

// The metrics of one client, by the names of gRPC (gRFC A66, A91, A94, A96) in the form of Prometheus. Clients of one
// name share their series. Loop's thread only.
class ClusterMetrics {
 public:
  using Counts = std::array<std::size_t, 4>;  // Endpoints by Reach.
  // Times and counts of a call.
  struct CallCosts {
    Duration time{};       // With all attempts and pauses.
    unsigned retries = 0;  // By the policy.
    unsigned copies = 0;
    Duration pauses{};  // Before the retries.
  };

  // The registry outlives this object.
  ClusterMetrics(MetricRegistry& registry, std::string target);
  ClusterMetrics(const ClusterMetrics&) = delete;
  ClusterMetrics& operator=(const ClusterMetrics&) = delete;
  ~ClusterMetrics() { show({}); }

  // Without memory for a new series, the attempt or the call is not counted.
  void begin_attempt(std::string_view method) noexcept;
  void end_attempt(std::string_view method, std::int32_t status, Duration time) noexcept;
  void end_call(std::string_view method, std::int32_t status, const CallCosts& costs) noexcept;
  void note_connect(bool succeeded) noexcept { (succeeded ? connected_ : failed_).add(); }
  void note_disconnect() noexcept { disconnected_.add(); }
  void note_ejections(const Ejections& ejections) noexcept;
  void show(const Counts& endpoints) noexcept;

 private:
  using Durations = std::array<Histogram*, statuses_count>;  // By status; null until it occurs.
  struct Method {
    Counter* started = nullptr;
    Durations attempts{};
    Durations calls{};
    Histogram* retries = nullptr;  // Null until a call is made again.
    Histogram* pauses = nullptr;   // Null until then, too.
    Histogram* copies = nullptr;   // Null until a call has a copy.
  };
  struct TimedWork {
    Durations Method::* durations;
    const char* metric;
    const char* help;
  };
  // A histogram without a status.
  struct CallPart {
    Histogram* Method::* histogram;
    const char* metric;
    const char* help;
    const char* unit;
  };
  static const CallPart retries_counted;
  static const CallPart pauses_timed;
  static const CallPart copies_counted;
  static const TimedWork attempts_timed;
  static const TimedWork calls_timed;

  Method& of(std::string_view method);
  Histogram& durations_of(const TimedWork& work, std::string_view method, std::int32_t status);
  Histogram& part_of(const CallPart& part, std::string_view method);
  // The labels of a method that of() has found or added.
  MetricLabels known_labels_of(std::string_view method) const;
  MetricLabels labels_of(std::string_view method) const;

  MetricRegistry& registry_;
  const std::string target_;
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  // At most ClusterMonitor::methods_max, and "other".
  std::unordered_map<std::string, Method, Hash, std::equal_to<>> methods_;
  Counter& connected_;
  Counter& failed_;
  Counter& disconnected_;
  std::array<Gauge*, 4> endpoints_;
  Counts shown_{};
};

}  // namespace hawser::cluster
