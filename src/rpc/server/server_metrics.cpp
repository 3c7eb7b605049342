#include "hawser/server_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "rpc/server/inspector.h"

namespace hawser {

namespace {

using rpc::Inspector;

MetricLabels with(MetricLabels labels, std::string name, std::string value) {
  labels.emplace_back(std::move(name), std::move(value));
  return labels;
}

void write_method(MetricWriter& writer, const rpc::MethodReport& report, const HistogramSnapshot& latency,
                  const MetricLabels& labels) {
  for (std::size_t code = 0; code < report.by_code.size(); ++code) {
    if (report.by_code[code] == 0) continue;
    const std::string_view name = to_string(static_cast<ErrorCode>(code));
    writer.counter({"hawser_server_method_calls", "Calls that have ended, by method and outcome."},
                   with(labels, "code", std::string(name)), static_cast<double>(report.by_code[code]));
  }
  writer.gauge({"hawser_server_method_calls_in_flight", "Calls of a method that are in flight."}, labels,
               static_cast<double>(report.active));
  writer.counter(
      {"hawser_server_method_request_bytes", "Encoded arguments and attachments, without stream items.", "bytes"},
      labels, static_cast<double>(report.request_bytes));
  writer.counter(
      {"hawser_server_method_reply_bytes", "Encoded results and attachments, without stream items.", "bytes"}, labels,
      static_cast<double>(report.reply_bytes));
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
    for (std::size_t code = 0; code < rest.by_code.size(); ++code) rest.by_code[code] += report.by_code[code];
    rest.calls += report.calls;
    rest.active += report.active;
    rest.request_bytes += report.request_bytes;
    rest.reply_bytes += report.reply_bytes;
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
    const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
    writer.counter({"hawser_loop_ticks", "Turns of a loop."}, own, static_cast<double>(loop.ticks.ticks));
    writer.counter(
        {"hawser_loop_busy_seconds", "Time in which a loop worked, without waiting and spinning.", "seconds"}, own,
        seconds(loop.ticks.busy));
    writer.gauge({"hawser_loop_longest_tick_seconds", "The longest tick since the start.", "seconds"}, own,
                 seconds(loop.ticks.longest));
    HistogramSnapshot lengths;
    lengths.counts = loop.ticks.lengths;
    for (const std::uint64_t count : lengths.counts) lengths.count += count;
    lengths.sum = static_cast<std::uint64_t>(loop.ticks.busy.count());
    writer.histogram({"hawser_loop_tick_duration_seconds", "Length of the ticks of a loop.", "seconds"}, own, lengths);
    writer.gauge({"hawser_loop_connections", "Connections of a loop."}, own, static_cast<double>(loop.connections));
    writer.gauge({"hawser_loop_receive_bytes", "Use of receive_bytes_max of a loop.", "bytes"}, own,
                 static_cast<double>(loop.receive_bytes));
    writer.gauge({"hawser_loop_unsent_bytes", "The part of this use that waits to be sent.", "bytes"}, own,
                 static_cast<double>(loop.unsent_bytes));
    writer.gauge({"hawser_loop_receive_limit_bytes", "Limit of the memory of a loop for received data.", "bytes"}, own,
                 static_cast<double>(loop.receive_bytes_max));
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
    const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
      writer.counter({name, help}, labels, static_cast<double>(value));
    };
    const auto gauge = [&](const MetricInfo& info, std::uint64_t value) {
      writer.gauge(info, labels, static_cast<double>(value));
    };
    counter("hawser_server_connections_accepted", "Byte streams that were accepted.", counters.connections_accepted);
    gauge({"hawser_server_connections_open", "Connections that are open."}, counters.connections_open);
    counter("hawser_server_connections_refused", "Connections that a limit, a HELLO or a stop refused.",
            counters.connections_refused);
    counter("hawser_server_handshakes_failed",
            "Connections without a complete and valid HELLO, except those that ended before their first byte.",
            counters.handshakes_failed);
    counter("hawser_server_calls", "Requests that arrived.", counters.calls);
    gauge({"hawser_server_calls_in_flight", "Calls that are not answered in place and have not ended."},
          counters.calls_in_flight);
    counter("hawser_server_calls_refused", "Calls that were refused before their handler ran.", counters.calls_refused);
    counter("hawser_server_protocol_errors", "Connections that ended because the peer violated the protocol.",
            counters.protocol_errors);
    counter("hawser_server_memory_refusals", "Requests and stream items without room in receive_bytes_max.",
            counters.memory_refusals);
    counter("hawser_server_slow_peers", "Connections that receive_rate_min ended.", counters.slow_peers);
    gauge({"hawser_server_receive_bytes", "Memory of received data that is in use.", "bytes"}, counters.receive_bytes);
    counter("hawser_server_transports_declined", "Transports that were offered and do not carry their connection.",
            counters.transports_declined);
    write_methods(writer, server, labels);
    write_loops(writer, server, labels);
  });
}

}  // namespace hawser
