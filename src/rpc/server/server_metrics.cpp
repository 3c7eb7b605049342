#include "hawser/server_metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/metric_row.h"
#include "hawser/server_counter_rows.h"
#include "rpc/port/method_counters.h"
#include "rpc/server/inspector.h"
#include "rpc/server/loop_report.h"

namespace hawser {

namespace {

using rpc::Inspector;

MetricLabels with(MetricLabels labels, std::string name, std::string value) {
  labels.emplace_back(std::move(name), std::move(value));
  return labels;
}

void write(MetricWriter& writer, const MetricRow& row, const MetricLabels& labels, double value) {
  const MetricInfo info{std::string(row.name), std::string(row.help), std::string(row.unit)};
  switch (row.kind) {
    case MetricKind::counter: return writer.counter(info, labels, value);
    case MetricKind::gauge: return writer.gauge(info, labels, value);
  }
}

void write_method(MetricWriter& writer, const rpc::MethodReport& report, const HistogramSnapshot& latency,
                  const MetricLabels& labels) {
  for (std::size_t code = 0; code < report.by_code.size(); ++code) {
    if (report.by_code[code] == 0) continue;
    const std::string_view name = to_string(static_cast<ErrorCode>(code));
    writer.counter({"hawser_server_method_calls", "Calls that have ended, by method and outcome."},
                   with(labels, "code", std::string(name)), static_cast<double>(report.by_code[code]));
  }
  for (const auto& row : rpc::method_value_rows<std::uint64_t>) {
    write(writer, row.metric, labels, static_cast<double>(report.*row.value));
  }
  writer.histogram({"hawser_server_call_duration_seconds",
                    "Time from the begin of a call to its end. Of calls that end in the tick in which they began, some "
                    "are timed and stand for the others.",
                    "seconds"},
                   labels, latency);
}

void write_methods(MetricWriter& writer, const Server& server, const MetricLabels& labels) {
  const std::vector<const rpc::MethodTable*> tables = Inspector::tables(server);
  const std::size_t methods = Inspector::methods(server);
  rpc::MethodReport rest;
  HistogramSnapshot rest_latency;
  for (std::size_t i = 0; i < methods; ++i) {
    const rpc::MethodReport report = Inspector::method(server, tables, i);
    if (report.calls + report.active == 0) continue;
    if (i < metric_methods_max) {
      write_method(writer, report, Inspector::latency(tables, i), with(labels, "method", std::string(report.name)));
      continue;
    }
    rest.add(report);
    rest_latency.merge(Inspector::latency(tables, i));
  }
  if (rest.calls + rest.active != 0) write_method(writer, rest, rest_latency, with(labels, "overflow", "true"));
}

void write_caches(MetricWriter& writer, const MetricInfo& info, const MetricLabels& labels,
                  const CachedMemory& cached) {
  writer.gauge(info, with(labels, "cache", "messages"), static_cast<double>(cached.block_bytes));
  writer.gauge(info, with(labels, "cache", "coroutines"), static_cast<double>(cached.frame_bytes));
  writer.gauge(info, with(labels, "cache", "tls"), static_cast<double>(cached.secret_bytes));
}

void write_loops(MetricWriter& writer, const Server& server, const MetricLabels& labels) {
  std::size_t number = 0;
  const std::vector<std::string> protocols = Inspector::protocols(server);
  std::array<std::uint64_t, 8> opened{};
  for (const rpc::LoopReport& loop : Inspector::loops(server)) {
    for (std::size_t i = 0; i < opened.size(); ++i) opened[i] += loop.opened[i];
    const MetricLabels own = with(labels, "loop", std::to_string(number++));
    for (const rpc::LoopMetricRow& row : rpc::loop_metric_rows) write(writer, row.metric, own, row.value(loop));
    HistogramSnapshot lengths;
    lengths.counts = loop.ticks.lengths;
    for (const std::uint64_t count : lengths.counts) lengths.count += count;
    lengths.sum = static_cast<std::uint64_t>(loop.ticks.busy.count());
    writer.histogram({"hawser_loop_tick_duration_seconds", "Length of the ticks of a loop.", "seconds"}, own, lengths);
    write_caches(writer, {"hawser_loop_cached_bytes", "Memory that the thread of a loop keeps.", "bytes"}, own,
                 loop.ticks.cached);
    write_caches(writer, {"hawser_loop_offload_cached_bytes", "Memory that the offload threads keep.", "bytes"}, own,
                 loop.ticks.offload_cached);
  }
  for (std::size_t i = 0; i < std::min(opened.size(), protocols.size()); ++i) {
    const bool others = i + 1 == opened.size() && protocols.size() > opened.size();
    writer.counter({"hawser_server_protocol_connections", "Connections that were opened, by protocol."},
                   others ? with(labels, "overflow", "true") : with(labels, "protocol", protocols[i]),
                   static_cast<double>(opened[i]));
  }
}

}  // namespace

std::shared_ptr<void> collect_metrics(MetricRegistry& registry, const Server& server, MetricLabels labels) {
  return registry.collect([&server, labels = std::move(labels)](MetricWriter& writer) {
    const ServerCounters counters = server.counters();
    for (const auto& row : server_counter_rows<std::uint64_t>) {
      write(writer, row.metric, labels, static_cast<double>(counters.*row.value));
    }
    write_methods(writer, server, labels);
    write_loops(writer, server, labels);
  });
}

}  // namespace hawser
