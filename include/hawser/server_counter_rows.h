#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "hawser/metric_row.h"
#include "hawser/server_counters.h"

namespace hawser {

// How one of the values is shown. A program that exports the counters to another system visits the rows:
//   for (const auto& row : server_counter_rows<std::uint64_t>) send(row.metric.name, counters.*row.value);
template <class Number>
struct ServerCounterRow {
  Number ServerCountersOf<Number>::* value;
  MetricRow metric;             // In /metrics.
  std::string_view title = {};  // In the table "Server" of the page /status. Empty: the table does not have it.
  bool problem_if_set = false;  // The page marks it when it is not 0.
};

// Each value once, in the order of the page. The sum over the loops, /metrics and the page /status have the rows of
// this table; docs/operations.md lists the metrics.
template <class Number>
inline constexpr std::array<ServerCounterRow<Number>, 12> server_counter_rows = {{
    {.value = &ServerCountersOf<Number>::calls,
     .metric = {MetricKind::counter, "hawser_server_calls", "Requests that arrived."},
     .title = "calls"},
    {.value = &ServerCountersOf<Number>::calls_in_flight,
     .metric = {MetricKind::gauge, "hawser_server_calls_in_flight",
                "Calls that are not answered in place and have not ended."},
     .title = "calls in flight"},
    {.value = &ServerCountersOf<Number>::calls_refused,
     .metric = {MetricKind::counter, "hawser_server_calls_refused",
                "Calls that were refused before their handler ran."},
     .title = "calls refused",
     .problem_if_set = true},
    {.value = &ServerCountersOf<Number>::connections_open,
     .metric = {MetricKind::gauge, "hawser_server_connections_open", "Connections that are open."},
     .title = "connections open"},
    {.value = &ServerCountersOf<Number>::connections_accepted,
     .metric = {MetricKind::counter, "hawser_server_connections_accepted", "Byte streams that were accepted."},
     .title = "connections accepted"},
    {.value = &ServerCountersOf<Number>::connections_refused,
     .metric = {MetricKind::counter, "hawser_server_connections_refused",
                "Connections that a limit, a HELLO or a stop refused."},
     .title = "connections refused",
     .problem_if_set = true},
    {.value = &ServerCountersOf<Number>::handshakes_failed,
     .metric = {MetricKind::counter, "hawser_server_handshakes_failed",
                "Connections without a complete and valid HELLO, except those that ended before their first byte."},
     .title = "handshakes failed"},
    {.value = &ServerCountersOf<Number>::protocol_errors,
     .metric = {MetricKind::counter, "hawser_server_protocol_errors",
                "Connections that ended because the peer violated the protocol."},
     .title = "protocol errors",
     .problem_if_set = true},
    {.value = &ServerCountersOf<Number>::memory_refusals,
     .metric = {MetricKind::counter, "hawser_server_memory_refusals",
                "Requests and stream items without room in receive_bytes_max."},
     .title = "memory refusals",
     .problem_if_set = true},
    {.value = &ServerCountersOf<Number>::slow_peers,
     .metric = {MetricKind::counter, "hawser_server_slow_peers", "Connections that receive_rate_min ended."},
     .title = "slow peers",
     .problem_if_set = true},
    {.value = &ServerCountersOf<Number>::transports_declined,
     .metric = {MetricKind::counter, "hawser_server_transports_declined",
                "Transports that were offered and do not carry their connection."},
     .title = "transports declined"},
    {.value = &ServerCountersOf<Number>::receive_bytes,
     .metric = {MetricKind::gauge, "hawser_server_receive_bytes", "Memory of received data that is in use.", "bytes"}},
}};
static_assert(sizeof(ServerCounters) == server_counter_rows<std::uint64_t>.size() * sizeof(std::uint64_t),
              "server_counter_rows needs one row for each member of ServerCountersOf");

}  // namespace hawser
