#include "hawser/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hawser {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::string prometheus(const MetricRegistry& registry) { return registry.render(MetricFormat::prometheus); }
std::string openmetrics(const MetricRegistry& registry) { return registry.render(MetricFormat::openmetrics); }

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LogLinear, EachValueLiesInItsBucket) {
  using Buckets = HistogramSnapshot::Buckets;
  std::uint64_t end_of_previous = 0;
  for (std::size_t index = 0; index < Buckets::buckets; ++index) {
    ASSERT_EQ(Buckets::first_of(index), end_of_previous);
    ASSERT_EQ(Buckets::index_of(Buckets::first_of(index)), index);
    ASSERT_EQ(Buckets::index_of(Buckets::last_of(index)), index);
    ASSERT_EQ(Buckets::index_of(Buckets::middle_of(index)), index);
    end_of_previous = Buckets::last_of(index) + 1;
  }
  EXPECT_EQ(end_of_previous, Buckets::value_end);
  EXPECT_EQ(Buckets::index_of(~std::uint64_t{0}), Buckets::buckets - 1);
}

TEST(Metrics, CounterSumsThreads) {
  Counter counter;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) counter.add();
    });
  }
  threads.clear();
  EXPECT_EQ(counter.value(), 12'000u);
}

TEST(Metrics, HistogramMergesThreadsAndGivesPercentiles) {
  Histogram histogram;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t n = 1; n <= 1000; ++n) histogram.record(n);
    });
  }
  threads.clear();
  const HistogramSnapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.count, 12'000u);
  EXPECT_EQ(snapshot.sum, 12u * 500'500u);
  EXPECT_NEAR(static_cast<double>(snapshot.quantile(0.5)), 500, 500 * 0.032);
  EXPECT_NEAR(static_cast<double>(snapshot.quantile(0.99)), 990, 990 * 0.032);
  HistogramSnapshot twice = snapshot;
  twice.merge(snapshot);
  EXPECT_EQ(twice.count, 24'000u);
  EXPECT_EQ(twice.quantile(0.5), snapshot.quantile(0.5));
}

TEST(Metrics, EmptyAndExtremeValues) {
  Histogram histogram;
  EXPECT_EQ(histogram.snapshot().quantile(0.5), 0u);
  histogram.record(microseconds(-5));
  EXPECT_EQ(histogram.snapshot().quantile(1), 0u);
  histogram.record(~std::uint64_t{0} >> 1);
  EXPECT_EQ(histogram.snapshot().count, 2u);
  EXPECT_GT(histogram.snapshot().quantile(1), HistogramSnapshot::Buckets::value_end / 32 * 31);
}

TEST(MetricText, PrometheusText) {
  MetricRegistry registry;
  registry.counter({"shop_orders", "Orders \\ that\nwere \"accepted\"."}, {{"kind", "a\"b\\c\nd"}}).add(3);
  registry.gauge({"shop_stock", "Items."}).set(-1.5);
  EXPECT_EQ(prometheus(registry),
            "# HELP shop_orders_total Orders \\\\ that\\nwere \"accepted\".\n"
            "# TYPE shop_orders_total counter\n"
            "shop_orders_total{kind=\"a\\\"b\\\\c\\nd\"} 3\n"
            "# HELP shop_stock Items.\n"
            "# TYPE shop_stock gauge\n"
            "shop_stock -1.5\n");
}

TEST(MetricText, OpenMetricsText) {
  MetricRegistry registry;
  registry.counter({"shop_sent_bytes", "Sent.", "bytes"}).add(7);
  EXPECT_EQ(openmetrics(registry),
            "# HELP shop_sent_bytes Sent.\n"
            "# TYPE shop_sent_bytes counter\n"
            "# UNIT shop_sent_bytes bytes\n"
            "shop_sent_bytes_total 7\n"
            "# EOF\n");
  EXPECT_EQ(openmetrics(MetricRegistry()), "# EOF\n");
}

TEST(MetricText, HistogramOfDurations) {
  MetricRegistry registry;
  Histogram& latency = registry.histogram({"shop_order_duration_seconds", "Time.", "seconds"});
  latency.record(microseconds(1));  // Below 1.023 us.
  latency.record(microseconds(1500));
  latency.record(std::chrono::hours(1));  // Above the last bound.
  const std::string text = prometheus(registry);
  EXPECT_THAT(text, HasSubstr("shop_order_duration_seconds_bucket{le=\"1.023e-06\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("shop_order_duration_seconds_bucket{le=\"0.001048575\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("shop_order_duration_seconds_bucket{le=\"0.002097151\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("shop_order_duration_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("shop_order_duration_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("shop_order_duration_seconds_sum 3600.001501\n"));
}

TEST(MetricText, ExemplarsOnlyInOpenMetrics) {
  MetricRegistry registry;
  Histogram& latency = registry.histogram({"x_seconds", "Time.", "seconds"}, {{"method", "echo"}});
  latency.record(milliseconds(3), "4bf92f3577b34da6a3ce929d0e0e4736");
  latency.record(milliseconds(3), std::string(65, 'a'));  // Too long to keep.
  EXPECT_THAT(openmetrics(registry), HasSubstr("} 2 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 0.003 "));
  EXPECT_EQ(count_of(openmetrics(registry), "trace_id"), 1u);
  EXPECT_THAT(prometheus(registry), Not(HasSubstr("trace_id")));
}

TEST(MetricRegistry, ReturnsTheSameSeriesAgain) {
  MetricRegistry registry;
  Counter& one = registry.counter({"a", "A."}, {{"x", "1"}});
  EXPECT_EQ(&registry.counter({"a", "A."}, {{"x", "1"}}), &one);
  EXPECT_NE(&registry.counter({"a", "A."}, {{"x", "2"}}), &one);
}

TEST(MetricRegistry, RefusesNamesThatScrapersRefuse) {
  MetricRegistry registry;
  registry.counter({"a", "A."});
  EXPECT_THROW(registry.gauge({"a", "A."}), std::logic_error);
  for (const char* name : {"", "1a", "a-b", "a b", "a_total", "a_bucket", "a_count", "a_sum", "a_created", "\xff"}) {
    EXPECT_THROW(registry.counter({name, "A."}), std::logic_error) << name;
  }
  EXPECT_THROW(registry.counter({"b", "B.", "bytes"}), std::logic_error);
  EXPECT_THROW(registry.counter({"b", "B."}, {{"le", "1"}}), std::logic_error);
  EXPECT_THROW(registry.counter({"b", "B."}, {{"__x", "1"}}), std::logic_error);
  EXPECT_THROW(registry.counter({"b", "B."}, {{"x", "1"}, {"x", "2"}}), std::logic_error);
  EXPECT_EQ(prometheus(registry), "# HELP a_total A.\n# TYPE a_total counter\na_total 0\n");
}

TEST(MetricRegistry, SeriesAreBounded) {
  MetricRegistry registry(10);
  for (int i = 0; i < 1000; ++i) registry.counter({"a", "A."}, {{"user", std::to_string(i)}}).add();
  const std::string text = prometheus(registry);
  EXPECT_EQ(count_of(text, "a_total{user="), 10u);
  EXPECT_THAT(text, HasSubstr("a_total{overflow=\"true\"} 990\n"));
}

TEST(MetricRegistry, LabelsOfPeersCannotBreakTheText) {
  MetricRegistry registry;
  registry.counter({"a", "A."}, {{"peer", "\xff\xc0\xaf\"\n}" + std::string(1000, 'x')}}).add();
  const std::string text = prometheus(registry);
  EXPECT_THAT(text, HasSubstr("a_total{peer=\"???\\\"\\n}xxx"));
  EXPECT_LT(text.size(), 300u);
  registry.counter({"b", "B."}, {{"peer", std::string(127, 'x') + "\xc3\xa9"}}).add();  // Not cut within a character.
  EXPECT_THAT(prometheus(registry), HasSubstr("b_total{peer=\"" + std::string(127, 'x') + "\"}"));
}

TEST(MetricRegistry, CollectorsAddSamplesUntilTheyEnd) {
  MetricRegistry registry(3);
  registry.gauge({"own", "Own."}).set(1);
  int calls = 0;
  std::shared_ptr<void> registration = registry.collect([&](MetricWriter& writer) {
    ++calls;
    writer.gauge({"own", "Own."}, {}, 2);       // There already.
    writer.counter({"own", "Own."}, {}, 2);     // Another kind.
    writer.gauge({"bad name", "Bad."}, {}, 2);  // A scraper would refuse the page.
    writer.counter({"open", "Open."}, {{"loop", "0"}}, 5);
    writer.counter({"open", "Open."}, {{"loop", "0"}}, 6);
    for (int i = 1; i < 100; ++i) writer.counter({"open", "Open."}, {{"loop", std::to_string(i)}}, 1);
  });
  const std::string text = prometheus(registry);
  EXPECT_THAT(text, HasSubstr("own 1\n"));
  EXPECT_THAT(text, HasSubstr("open_total{loop=\"0\"} 5\n"));
  EXPECT_EQ(count_of(text, "open_total{"), 3u);
  EXPECT_EQ(count_of(text, "own"), 3u);  // HELP, TYPE and one sample.
  EXPECT_THAT(text, Not(HasSubstr("bad")));
  registration.reset();
  EXPECT_EQ(prometheus(registry), "# HELP own Own.\n# TYPE own gauge\nown 1\n");
  EXPECT_EQ(calls, 1);
}

TEST(MetricRegistry, ACollectorThatThrowsHidesNoOtherMetric) {
  MetricRegistry registry;
  registry.counter({"a", "A."}).add(3);
  const auto before = registry.collect([](MetricWriter& writer) { writer.gauge({"b", "B."}, {}, 1); });
  const auto broken = registry.collect([](MetricWriter& writer) {
    writer.gauge({"c", "C."}, {}, 1);
    throw std::runtime_error("no luck");
  });
  const auto behind = registry.collect([](MetricWriter& writer) { writer.gauge({"d", "D."}, {}, 1); });
  const std::string text = registry.render(MetricFormat::prometheus);
  for (const char* const line : {"a_total 3\n", "b 1\n", "c 1\n", "d 1\n", "hawser_metric_collectors_failed 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(MetricRegistry, ARegistrationMayOutliveTheRegistry) {
  std::shared_ptr<void> registration;
  {
    MetricRegistry registry;
    registration = registry.collect([](MetricWriter&) {});
  }
  registration.reset();
}

TEST(MetricRegistry, IsUsedByThreadsAtOnce) {
  MetricRegistry registry;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) {
        registry.counter({"a", "A."}, {{"n", std::to_string(n % 7)}}).add();
        registry.histogram({"b_seconds", "B.", "seconds"}).record(microseconds(n), "trace");
        if (n % 50 == i) static_cast<void>(openmetrics(registry));
        const auto registration = registry.collect([](MetricWriter& writer) { writer.gauge({"c", "C."}, {}, 1); });
      }
    });
  }
  threads.clear();
  EXPECT_EQ(registry.histogram({"b_seconds", "B.", "seconds"}).snapshot().count, 800u);
}

}  // namespace
}  // namespace hawser
