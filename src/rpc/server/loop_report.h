#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "exec/loop_statistics.h"
#include "hawser/detail/loop_access.h"
#include "hawser/metric_row.h"
#include "rpc/server/server_loop.h"

namespace hawser::rpc {

// The values of one loop of a server.
struct LoopReport {
  explicit LoopReport(ServerLoop& loop)
      : ticks(detail::LoopAccess::statistics(loop.loop())),
        connections(loop.counters().connections_open.get()),
        calls(loop.counters().calls.get()),
        receive_bytes(loop.receive_bytes()),
        unsent_bytes(loop.counters().unsent_bytes.get()),
        receive_bytes_max(loop.receive_bytes_max()) {
    for (std::size_t i = 0; i < opened.size(); ++i) opened[i] = loop.counters().opened[i].get();
  }

  exec::LoopStatistics ticks;
  std::uint64_t connections;
  std::array<std::uint64_t, 8> opened{};  // LoopCounters::opened.
  std::uint64_t calls;
  std::size_t receive_bytes;
  std::size_t unsent_bytes;  // The part of receive_bytes that waits to be sent.
  std::size_t receive_bytes_max;
};

// A metric of a loop.
struct LoopMetricRow {
  double (*value)(const LoopReport& loop);
  MetricRow metric;
};

// Each metric that is one number of a loop. The pages /loops and /memory show the same values with others that they
// compute, and with their own marks for problems.
inline constexpr std::array loop_metric_rows = std::to_array<LoopMetricRow>({
    {[](const LoopReport& loop) { return static_cast<double>(loop.ticks.ticks); },
     {MetricKind::counter, "hawser_loop_ticks", "Turns of a loop."}},
    {[](const LoopReport& loop) { return std::chrono::duration<double>(loop.ticks.busy).count(); },
     {MetricKind::counter, "hawser_loop_busy_seconds", "Time in which a loop worked, without waiting and spinning.",
      "seconds"}},
    {[](const LoopReport& loop) { return std::chrono::duration<double>(loop.ticks.longest).count(); },
     {MetricKind::gauge, "hawser_loop_longest_tick_seconds", "The longest tick since the start.", "seconds"}},
    {[](const LoopReport& loop) { return static_cast<double>(loop.connections); },
     {MetricKind::gauge, "hawser_loop_connections", "Connections of a loop."}},
    {[](const LoopReport& loop) { return static_cast<double>(loop.receive_bytes); },
     {MetricKind::gauge, "hawser_loop_receive_bytes", "Use of receive_bytes_max of a loop.", "bytes"}},
    {[](const LoopReport& loop) { return static_cast<double>(loop.unsent_bytes); },
     {MetricKind::gauge, "hawser_loop_unsent_bytes", "The part of this use that waits to be sent.", "bytes"}},
    {[](const LoopReport& loop) { return static_cast<double>(loop.receive_bytes_max); },
     {MetricKind::gauge, "hawser_loop_receive_limit_bytes", "Limit of the memory of a loop for received data.",
      "bytes"}},
});

}  // namespace hawser::rpc
