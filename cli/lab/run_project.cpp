#include "lab/run_project.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "lab/projection.h"

namespace hawser::cli::lab {

using namespace hawser::lab;

namespace {

// What coro_rpc publishes of itself over RDMA: a 180 Gb/s RoCE network, server and client on machines of their own.
struct Published {
  std::size_t bytes;
  unsigned in_flight;
  double calls_per_s;
};
constexpr Published published[] = {
    {128, 1, 43'394},         {128, 4, 149'130},      {128, 16, 393'404},      {128, 64, 841'342},
    {128, 256, 1'533'744},    {4096, 1, 37'017},      {4096, 4, 137'317},      {4096, 16, 355'264},
    {4096, 64, 745'242},      {4096, 256, 1'318'979}, {32'768, 1, 32'084},     {32'768, 4, 114'081},
    {32'768, 16, 319'392},    {32'768, 64, 565'878},  {32'768, 256, 697'849},  {262'144, 1, 13'634},
    {262'144, 4, 47'718},     {262'144, 16, 87'063},  {262'144, 64, 87'030},   {262'144, 256, 88'359},
    {1'048'576, 1, 6566},     {1'048'576, 4, 19'299}, {1'048'576, 16, 21'864}, {1'048'576, 64, 21'969},
    {1'048'576, 256, 22'041},
};

CallPlan plan_of(const ProjectOptions& options, const Published& cell) {
  CallPlan plan{
      .request_bytes = cell.bytes, .in_flight = cell.in_flight, .call_ns = options.call_ns, .seed = options.seed};
  plan.device.gbit_per_s = options.gbit_per_s;
  if (options.latency_us > 0) {
    // All that is not the link's stays as it is.
    constexpr double own_latency_ns = 2000;
    plan.device.link_ns = std::max(0.0, plan.device.link_ns + options.latency_us * 1e3 - own_latency_ns);
  }
  constexpr std::uint64_t rounds = 50;
  constexpr std::size_t bytes_max = std::size_t{512} << 20;
  plan.calls =
      std::clamp<std::uint64_t>(rounds * cell.in_flight, 200, std::max<std::size_t>(200, bytes_max / cell.bytes));
  return plan;
}

}  // namespace

int run_project(const ProjectOptions& options) {
  fmt::print(
      "Projection, not a measurement: Hawser's own RDMA connections over a simulated card of {} Gb/s, one connection, "
      "one\n"
      "thread a side, replies of 16 B, {} ns of a side's processor for a call besides the verbs. Beside it what "
      "coro_rpc\n"
      "publishes of 180 Gb/s RoCE, with connections of its own for the calls in flight.\n\n",
      options.gbit_per_s, options.call_ns);
  fmt::print(
      "| Request (B) | Concurrency | Projected calls/s | Gb/s | P90 (us) | P99 (us) | coro_rpc calls/s |\n"
      "|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const Published& cell : published) {
    const Result<CallResult> result = project_calls(plan_of(options, cell));
    if (!result) {
      fmt::print(stderr, "hawser: {} B, {} in flight: {}\n", cell.bytes, cell.in_flight, result.error().text);
      return 1;
    }
    fmt::print("| {} | {} | {:.0f} | {:.2f} | {:.1f} | {:.1f} | {:.0f} |\n", cell.bytes, cell.in_flight,
               result->calls_per_s, result->calls_per_s * static_cast<double>(cell.bytes) * 8 / 1e9, result->p90_us,
               result->p99_us, cell.calls_per_s);
  }
  return 0;
}

}  // namespace hawser::cli::lab
