#include "hawser/server_metrics.h"

#include <utility>

namespace hawser {

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
    counter("hawser_server_handshakes_failed", "Connections without a complete and valid HELLO.",
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
  });
}

}  // namespace hawser
