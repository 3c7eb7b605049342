#include <algorithm>
#include <list>
#include <set>
#include <stdexcept>
#include <utility>

#include "hawser/metrics.h"
#include "metrics/metric_text.h"

namespace hawser {

using metrics::Family;
using metrics::Sample;
using metrics::SeriesKind;

namespace {

const MetricLabels overflow_labels = {{"overflow", "true"}};

void require(const std::string& problem) {
  if (!problem.empty()) throw std::logic_error(problem);
}

// The series of one metric of the registry.
struct Metric {
  MetricInfo info;
  SeriesKind kind = SeriesKind::counter;
  std::map<MetricLabels, std::unique_ptr<Counter>> counters;
  std::map<MetricLabels, std::unique_ptr<Gauge>> gauges;
  std::map<MetricLabels, std::unique_ptr<Histogram>> histograms;
};

// Returns the series with these labels, or the one of the overflow.
template <class Series>
Series& find_series(std::map<MetricLabels, std::unique_ptr<Series>>& all, const MetricLabels& labels,
                    std::size_t series_max) {
  const auto found = all.find(labels);
  if (found != all.end()) return *found->second;
  std::unique_ptr<Series>& made = all[all.size() < series_max ? labels : overflow_labels];
  if (made == nullptr) made = std::make_unique<Series>();
  return *made;
}

// Collects families by name. Samples that the name, the kind or the number of series forbids are left out: text that a
// scraper refuses would hide all metrics.
class Families final : public MetricWriter {
 public:
  explicit Families(std::size_t series_max) : series_max_(series_max) {}

  Family* find(const MetricInfo& info, SeriesKind kind) {
    const auto [at, added] = families_.try_emplace(info.name);
    if (added) {
      at->second.info = info;
      at->second.kind = kind;
    }
    return at->second.kind == kind ? &at->second : nullptr;
  }

  // Adds a sample unless its labels were there before.
  void push(Family& family, Sample sample) {
    if (seen_[&family].insert(sample.labels).second) family.samples.push_back(std::move(sample));
  }

  void counter(const MetricInfo& info, const MetricLabels& labels, double value) override {
    add(info, SeriesKind::counter, labels, {.labels = {}, .value = value});
  }
  void gauge(const MetricInfo& info, const MetricLabels& labels, double value) override {
    add(info, SeriesKind::gauge, labels, {.labels = {}, .value = value});
  }
  void histogram(const MetricInfo& info, const MetricLabels& labels, const HistogramSnapshot& value) override {
    add(info, SeriesKind::histogram, labels,
        {.labels = {}, .value = 0, .histogram = std::make_shared<const HistogramSnapshot>(value)});
  }

  std::string text(MetricFormat format) const {
    std::string result;
    for (const auto& [name, family] : families_) {
      if (!family.samples.empty()) append(result, family, format);
    }
    if (format == MetricFormat::openmetrics) result += "# EOF\n";
    return result;
  }

 private:
  void add(const MetricInfo& info, SeriesKind kind, const MetricLabels& labels, Sample sample) {
    if (!metrics::invalid(info).empty() || !metrics::invalid(labels).empty()) return;
    Family* const family = find(info, kind);
    if (family == nullptr || family->samples.size() >= series_max_) return;
    sample.labels = metrics::bounded(labels, MetricRegistry::label_bytes_max);
    push(*family, std::move(sample));
  }

  const std::size_t series_max_;
  std::map<std::string, Family> families_;
  std::map<const Family*, std::set<MetricLabels>> seen_;
};

}  // namespace

struct MetricRegistry::State {
  struct Collecting {
    Collector collector;
  };

  Metric& metric(const MetricInfo& info, SeriesKind kind) {
    const auto [at, added] = all.try_emplace(info.name);
    Metric& found = at->second;
    if (added) {
      found.info = info;
      found.kind = kind;
    }
    if (found.kind != kind) {
      throw std::logic_error("hawser: metric '" + info.name + "' is a " + std::string(to_string(found.kind)) +
                             " already and cannot be a " + std::string(to_string(kind)));
    }
    return found;
  }

  std::size_t series_max = 0;
  std::mutex lock;  // Guards `all`.
  std::map<std::string, Metric> all;
  std::mutex collectors_lock;  // Held while a collector runs.
  std::list<Collecting> collectors;
};

MetricRegistry::MetricRegistry(std::size_t series_max) : state_(std::make_shared<State>()) {
  state_->series_max = std::max<std::size_t>(series_max, 1);
}
MetricRegistry::~MetricRegistry() = default;

Counter& MetricRegistry::counter(const MetricInfo& info, const MetricLabels& labels) {
  require(metrics::invalid(info));
  require(metrics::invalid(labels));
  const std::scoped_lock lock(state_->lock);
  return find_series(state_->metric(info, SeriesKind::counter).counters, metrics::bounded(labels, label_bytes_max),
                     state_->series_max);
}

Gauge& MetricRegistry::gauge(const MetricInfo& info, const MetricLabels& labels) {
  require(metrics::invalid(info));
  require(metrics::invalid(labels));
  const std::scoped_lock lock(state_->lock);
  return find_series(state_->metric(info, SeriesKind::gauge).gauges, metrics::bounded(labels, label_bytes_max),
                     state_->series_max);
}

Histogram& MetricRegistry::histogram(const MetricInfo& info, const MetricLabels& labels) {
  require(metrics::invalid(info));
  require(metrics::invalid(labels));
  const std::scoped_lock lock(state_->lock);
  return find_series(state_->metric(info, SeriesKind::histogram).histograms, metrics::bounded(labels, label_bytes_max),
                     state_->series_max);
}

std::shared_ptr<void> MetricRegistry::collect(Collector collector) {
  const std::scoped_lock lock(state_->collectors_lock);
  state_->collectors.push_front({std::move(collector)});
  struct Registration {
    Registration(std::shared_ptr<State> of, std::list<State::Collecting>::iterator where)
        : state(std::move(of)), at(where) {}
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    ~Registration() {
      const std::scoped_lock guard(state->collectors_lock);
      state->collectors.erase(at);
    }
    std::shared_ptr<State> state;
    std::list<State::Collecting>::iterator at;
  };
  return std::make_shared<Registration>(state_, state_->collectors.begin());
}

std::string MetricRegistry::render(MetricFormat format) const {
  Families families(state_->series_max);
  {
    const std::scoped_lock lock(state_->lock);
    for (const auto& [name, metric] : state_->all) {
      Family& family = *families.find(metric.info, metric.kind);
      for (const auto& [labels, counter] : metric.counters) {
        families.push(family, {.labels = labels, .value = static_cast<double>(counter->value())});
      }
      for (const auto& [labels, gauge] : metric.gauges) {
        families.push(family, {.labels = labels, .value = gauge->value()});
      }
      for (const auto& [labels, histogram] : metric.histograms) {
        Sample sample{.labels = labels,
                      .value = 0,
                      .histogram = std::make_shared<const HistogramSnapshot>(histogram->snapshot())};
        const std::scoped_lock exemplars_lock(histogram->exemplars_lock_);
        for (const auto& [width, exemplar] : histogram->exemplars_) {
          sample.exemplars[width] = {exemplar.trace_id, exemplar.value,
                                     std::chrono::duration<double>(exemplar.at.time_since_epoch()).count()};
        }
        families.push(family, std::move(sample));
      }
    }
  }
  const std::scoped_lock lock(state_->collectors_lock);
  double failed = 0;
  for (const State::Collecting& one : state_->collectors) {
    try {
      one.collector(families);
    } catch (...) {  // The other metrics are shown, and what this collector has written.
      ++failed;
    }
  }
  if (failed != 0) {
    families.gauge({"hawser_metric_collectors_failed", "Collectors that threw an exception during this rendering."}, {},
                   failed);
  }
  return families.text(format);
}

}  // namespace hawser
