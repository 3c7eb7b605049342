#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/detail/log_linear.h"
#include "hawser/time.h"

// Metrics of an application: counters, gauges and histograms, and their text for Prometheus.
//
//   hawser::MetricRegistry metrics;
//   hawser::Counter& orders = metrics.counter({"shop_orders", "Orders that were accepted."});
//   hawser::Histogram& latency = metrics.histogram({"shop_order_duration_seconds", "Time to accept an order."});
//   orders.add();
//   latency.record(elapsed);
//   std::string page = metrics.render(hawser::MetricFormat::prometheus);
namespace hawser {

namespace detail {
inline constexpr std::size_t metric_shards = 8;
// Returns the shard of the calling thread, below metric_shards. Threads get shards in turn.
std::size_t metric_shard() noexcept;
}  // namespace detail

// A number that only grows. Any thread; threads rarely share a cache line.
class Counter {
 public:
  Counter() noexcept = default;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void add(std::uint64_t count = 1) noexcept {
    shards_[detail::metric_shard()].value.fetch_add(count, std::memory_order_relaxed);
  }
  std::uint64_t value() const noexcept;

 private:
  struct alignas(64) Shard {
    std::atomic<std::uint64_t> value{0};
  };
  std::array<Shard, detail::metric_shards> shards_;
};

// A number that goes up and down. Any thread.
class Gauge {
 public:
  Gauge() noexcept = default;
  Gauge(const Gauge&) = delete;
  Gauge& operator=(const Gauge&) = delete;

  void set(double value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void add(double difference) noexcept { value_.fetch_add(difference, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Counts and sum of a histogram at one time, in nanoseconds for durations. Snapshots of several histograms can be
// merged.
struct HistogramSnapshot {
  // 16 buckets for each power of two, so that a percentile is off by at most 3.2 %. The last bucket ends at 2^42 (for
  // durations 73 minutes) and counts what is greater.
  using Buckets = detail::LogLinear<4, 42>;

  std::array<std::uint64_t, Buckets::buckets> counts{};
  std::uint64_t count = 0;
  std::uint64_t sum = 0;

  void merge(const HistogramSnapshot& other) noexcept;
  // The smallest value that a `fraction` of all values does not exceed, 0 < fraction <= 1, as the middle of its bucket.
  // 0 without values.
  std::uint64_t quantile(double fraction) const noexcept;
};

// Distribution of durations or of other numbers, such as sizes. Any thread. Each thread's shard takes 5 KiB when it
// first records.
class Histogram {
 public:
  using Buckets = HistogramSnapshot::Buckets;

  Histogram() noexcept = default;
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;
  ~Histogram();

  // A negative duration counts as 0.
  void record(Duration duration) noexcept {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
    record(ns < 0 ? 0 : static_cast<std::uint64_t>(ns));
  }
  void record(std::uint64_t value) noexcept;
  // Records, and keeps `trace_id` as the example of its bucket in OpenMetrics. An id longer than 64 bytes is not kept.
  void record(Duration duration, std::string_view trace_id);

  HistogramSnapshot snapshot() const noexcept;

 private:
  friend class MetricRegistry;
  struct Shard {
    std::array<std::atomic<std::uint64_t>, Buckets::buckets> counts{};
    std::atomic<std::uint64_t> sum{0};
  };
  struct Exemplar {
    std::string trace_id;
    std::uint64_t value = 0;
    std::chrono::system_clock::time_point at;
  };
  Shard* shard() noexcept;

  std::array<std::atomic<Shard*>, detail::metric_shards> shards_{};
  std::atomic<std::uint64_t> lost_{0};  // Records without memory for a shard.
  mutable std::mutex exemplars_lock_;
  std::map<std::size_t, Exemplar> exemplars_;  // By exported bucket.
};

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Name and description of a metric. The name has the prefix of its program and ends with its unit, by the conventions
// of Prometheus: "shop_order_duration_seconds". It has letters, digits and underscores. A counter is exported with the
// suffix "_total", which the name must not have.
struct MetricInfo {
  std::string name;
  std::string help;
  std::string unit =
      {};  // Such as "seconds" or "bytes"; the name must end with it then. Histograms of durations: "seconds".
};

enum class MetricFormat : std::uint8_t { prometheus, openmetrics };
// The Content-Type of a format.
std::string_view content_type(MetricFormat format) noexcept;

// Receives the samples of a collector; see MetricRegistry::collect().
class MetricWriter {
 public:
  virtual void counter(const MetricInfo& info, const MetricLabels& labels, double value) = 0;
  virtual void gauge(const MetricInfo& info, const MetricLabels& labels, double value) = 0;
  virtual void histogram(const MetricInfo& info, const MetricLabels& labels, const HistogramSnapshot& value) = 0;

 protected:
  ~MetricWriter() = default;
};

// The metrics of a program. Any thread. References stay valid as long as the registry. Asking for a metric again
// returns the same one. An invalid name, or the name of a metric of another kind, throws std::logic_error.
class MetricRegistry {
 public:
  // Bounds. A metric with more different labels counts the rest in one series with the label overflow="true".
  static constexpr std::size_t series_max_default = 1000;
  // Longer values of labels are cut at a UTF-8 character.
  static constexpr std::size_t label_bytes_max = 128;

  explicit MetricRegistry(std::size_t series_max = series_max_default);
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  Counter& counter(const MetricInfo& info, const MetricLabels& labels = {});
  Gauge& gauge(const MetricInfo& info, const MetricLabels& labels = {});
  Histogram& histogram(const MetricInfo& info, const MetricLabels& labels = {});

  // Calls `collector` at each render(), on the thread that renders, until the returned object is destroyed. The
  // destruction waits for a collector that runs. A collector must not use the registry.
  // If it throws, the other metrics are shown, and hawser_metric_collectors_failed counts it.
  using Collector = std::function<void(MetricWriter&)>;
  [[nodiscard]] std::shared_ptr<void> collect(Collector collector);

  // The text of all metrics, sorted by name. Bounded by the number of series, which series_max limits per metric; the
  // samples of collectors are limited likewise.
  std::string render(MetricFormat format) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hawser
