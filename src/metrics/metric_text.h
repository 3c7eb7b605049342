#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/metrics.h"

namespace hawser::metrics {

enum class SeriesKind : std::uint8_t { counter, gauge, histogram };
std::string_view to_string(SeriesKind kind) noexcept;

// An example of an exported bucket of a histogram.
struct Exemplar {
  std::string trace_id;
  std::uint64_t value = 0;
  double unix_seconds = 0;
};

struct Sample {
  MetricLabels labels;
  double value = 0;                                         // Counters and gauges.
  std::shared_ptr<const HistogramSnapshot> histogram = {};  // Not null for histograms.
  std::map<std::size_t, Exemplar> exemplars = {};           // By std::bit_width of the value.
};

// All samples of a metric.
struct Family {
  MetricInfo info;
  SeriesKind kind = SeriesKind::gauge;
  std::vector<Sample> samples;
};

// Returns why the name, the unit or a label cannot be exported, or an empty text.
std::string invalid(const MetricInfo& info);
std::string invalid(const MetricLabels& labels);
// Cuts `text` to `bytes` at a UTF-8 character, and replaces bytes that are not UTF-8.
std::string valid_text(std::string_view text, std::size_t bytes);
// Cuts values of labels to `bytes` at a UTF-8 character, and replaces bytes that are not UTF-8.
MetricLabels bounded(const MetricLabels& labels, std::size_t bytes);

// Appends the text of `family` in the format. Prometheus 0.0.4 or OpenMetrics 1.0.
void append(std::string& text, const Family& family, MetricFormat format);

}  // namespace hawser::metrics
