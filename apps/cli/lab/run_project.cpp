#include "cli/lab/run_project.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lab/model/projection.h"

namespace hawser::cli::lab {

using namespace hawser::lab;

namespace {

constexpr PublishedRate published_rates[] = {
    {128, 1, 43'394},         {128, 4, 149'130},      {128, 16, 393'404},      {128, 64, 841'342},
    {128, 256, 1'533'744},    {4096, 1, 37'017},      {4096, 4, 137'317},      {4096, 16, 355'264},
    {4096, 64, 745'242},      {4096, 256, 1'318'979}, {32'768, 1, 32'084},     {32'768, 4, 114'081},
    {32'768, 16, 319'392},    {32'768, 64, 565'878},  {32'768, 256, 697'849},  {262'144, 1, 13'634},
    {262'144, 4, 47'718},     {262'144, 16, 87'063},  {262'144, 64, 87'030},   {262'144, 256, 88'359},
    {1'048'576, 1, 6566},     {1'048'576, 4, 19'299}, {1'048'576, 16, 21'864}, {1'048'576, 64, 21'969},
    {1'048'576, 256, 22'041},
};

double rate_of(const ProjectOptions& options) noexcept {
  return options.gbit_per_s > 0 ? options.gbit_per_s : gbit_per_s_usual(options.load);
}

CallPlan plan_of(const ProjectOptions& options, const PublishedRate& cell) {
  CallPlan plan{.request_bytes = cell.bytes, .in_flight = cell.in_flight, .seed = options.seed};
  if (options.call_ns > 0) plan.call_ns = options.call_ns;
  plan.device.gbit_per_s = rate_of(options);
  // Large messages fill the link after few calls.
  constexpr std::size_t bytes_max = std::size_t{64} << 20;
  const std::uint64_t calls_max = std::max<std::uint64_t>(2 * cell.in_flight, bytes_max / cell.bytes);
  plan.warm_up_calls = std::min<std::uint64_t>(8 * cell.in_flight + 100, calls_max);
  plan.calls = std::min<std::uint64_t>(12 * cell.in_flight + 200, calls_max);
  return plan;
}

enum class Rounding { down, nearest, up };

// Rounds to two significant digits, with k or M from a thousand on.
std::string rounded(double value, Rounding rounding) {
  if (value <= 0) return "0";
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  const double units = value / unit;
  double kept = std::round(units);
  // A value that has two significant digits, apart from rounding errors, is not changed.
  if (rounding != Rounding::nearest && std::abs(units - kept) > 1e-6) {
    kept = rounding == Rounding::down ? std::floor(units) : std::ceil(units);
  }
  kept *= unit;
  const double scale = kept >= 0.9999995e6 ? 1e6 : kept >= 0.9999995e3 ? 1e3 : 1;
  const std::string_view suffix = scale == 1e6 ? " M" : scale == 1e3 ? " k" : "";
  return fmt::format("{:g}{}", kept / scale, suffix);
}

}  // namespace

std::string rounded_range(const Range& range) {
  const std::string low = rounded(range.low, Rounding::down);
  const std::string high = rounded(range.high, Rounding::up);
  return low == high ? low : low + " to " + high;
}

std::string project_row(const PublishedRate& cell, const CallRanges& ranges) {
  const auto gbit = [&](double calls_per_s) { return calls_per_s * static_cast<double>(cell.bytes) * 8 / 1e9; };
  return fmt::format(
      "| {} | {} | {} | {} | {} | {} | {} |\n", cell.bytes, cell.in_flight, rounded_range(ranges.calls_per_s),
      rounded_range({gbit(ranges.calls_per_s.low), gbit(ranges.calls_per_s.high)}), rounded_range(ranges.p90_us),
      rounded_range(ranges.p99_us), rounded(cell.calls_per_s, Rounding::nearest));
}

namespace {

std::string conditions_of(const ProjectOptions& options) {
  return fmt::format(
      "{}; {}",
      options.latency_us > 0 ? fmt::format("Half a round trip: {} us, given", options.latency_us)
                             : std::string("Half a round trip: about 2 us, uncertain"),
      options.call_ns > 0
          ? fmt::format("a call takes {} ns of a side's processor besides the verbs, given", options.call_ns)
          : std::string("a call takes about 290 ns of a side's processor besides the verbs, uncertain"));
}

int project_call_table(const ProjectOptions& options) {
  const Uncertainty uncertainty{
      .draws = options.draws, .call = options.call_ns <= 0, .half_trip_us = options.latency_us};
  fmt::print(
      "Projection, not a measurement: Hawser's own RDMA connections over a simulated card of {} Gb/s, one connection, "
      "one\n"
      "thread a side, replies of 16 B. Each range is from the least to the greatest of {} runs: one with the constants "
      "as\n"
      "they are, the others with constants drawn at random within their uncertainty (docs/lab.md).\n"
      "{}.\n\n"
      "For comparison: the figures that coro_rpc publishes, of another card, with numbers of threads and connections "
      "that it does not publish.\n\n",
      rate_of(options), options.draws + 1, conditions_of(options));
  fmt::print(
      "| Request (B) | Concurrency | Projected calls/s | Gb/s | P90 (us) | P99 (us) | coro_rpc calls/s |\n"
      "|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const PublishedRate& cell : published_rates) {
    const Result<CallRanges> ranges = project_ranges(plan_of(options, cell), uncertainty);
    if (!ranges) {
      fmt::print(stderr, "hawser: {} B, {} in flight: {}\n", cell.bytes, cell.in_flight, ranges.error().text);
      return 1;
    }
    fmt::print("{}", project_row(cell, *ranges));
  }
  fmt::print(
      "\nLeft out: interrupts and wake-ups (the loop spins), the scheduler, caches and memory bandwidth of the "
      "processors,\n"
      "other load on host and link, loss and congestion, packet headers, PCIe as a bottleneck, what the application "
      "does.\n"
      "So the high ends are out of reach for most systems. docs/lab.md, \"Predictions\", says how far the model is "
      "from "
      "figures\n"
      "that others published.\n");
  return 0;
}

// The figures to which the model of the published store was fitted.
bool is_fitted(const PublishedBlock& line) noexcept {
  return line.depth == published_block().front().depth || line.depth == published_block().back().depth;
}

std::string cells_of(const BlockRanges& ranges) {
  return fmt::format("{} | {} | {}", rounded_range(ranges.writes_per_s), rounded_range(ranges.mean_us),
                     rounded_range(ranges.p90_us));
}

int project_block_table(const ProjectOptions& options) {
  const Uncertainty uncertainty{
      .draws = options.draws, .call = options.call_ns <= 0, .half_trip_us = options.latency_us};
  const Result<BlockCalls> calls = project_block_calls(plan_of(options, {4096, 128, 0}), uncertainty);
  if (!calls) {
    fmt::print(stderr, "hawser: {}\n", calls.error().text);
    return 1;
  }
  fmt::print(
      "Projection, not a measurement: writes of 4 KB to the block store CurveBS, with the calls of Hawser in place of "
      "its own,\n"
      "over a simulated card of {} Gb/s, and over TCP. The store is known by its published figures only: two of "
      "each\n"
      "transport are fitted. Calls by RDMA are those of {} runs of the simulated device, calls by TCP take between "
      "half "
      "and\n"
      "all of the published time (docs/lab.md, \"Block store\").\n"
      "{}. A call by RDMA: {} us alone, {} us each of many.\n\n"
      "| Depth | RDMA writes/s | Mean (us) | P90 (us) | TCP writes/s | Mean (us) | P90 (us) | RDMA / TCP | Published "
      "RDMA | Published TCP | Published RDMA / TCP |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
      rate_of(options), options.draws + 1, conditions_of(options), rounded_range(calls->alone_us),
      rounded_range(calls->share_us));
  const std::vector<BlockProjection> rows = project_block(*calls);
  for (std::size_t i = 0; i < rows.size(); ++i) fmt::print("{}", block_row(rows[i], published_block()[i]));
  fmt::print(
      "\nThe model beside the published figures of the store itself, as a factor: the mean at the least depth and the "
      "writes/s at\n"
      "the greatest are fitted, all else is predicted.\n\n"
      "| Depth | RDMA writes/s | Mean | P90 | TCP writes/s | Mean | P90 | RDMA / TCP | |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---|\n");
  for (const PublishedBlock& line : published_block()) fmt::print("{}", block_fit_row(line));
  fmt::print(
      "\nLeft out: what the model of calls leaves out, the disks, and how the store makes its copies. P90 is not to be "
      "relied on.\n");
  return 0;
}

}  // namespace

double gbit_per_s_usual(ProjectedLoad load) noexcept { return load == ProjectedLoad::block ? 2 * 25 : 200; }

std::string block_row(const BlockProjection& row, const PublishedBlock& published) {
  return fmt::format("| {} | {} | {} | {} | {} | {} | {:.2f} |\n", row.depth, cells_of(row.rdma), cells_of(row.tcp),
                     rounded_range(row.ratio), rounded(published.rdma.writes_per_s, Rounding::nearest),
                     rounded(published.tcp.writes_per_s, Rounding::nearest),
                     published.rdma.writes_per_s / published.tcp.writes_per_s);
}

std::string block_fit_row(const PublishedBlock& published) {
  const auto factors = [&](BlockFigures PublishedBlock::* transport) {
    const BlockFigures& found = published.*transport;
    const BlockFigures model = figures_of(fitted_cost(published_block(), transport), published.depth);
    return fmt::format("{:.2f} | {:.2f} | {:.2f}", model.writes_per_s / found.writes_per_s,
                       model.mean_us / found.mean_us, model.p90_us / found.p90_us);
  };
  const double by_rdma =
      figures_of(fitted_cost(published_block(), &PublishedBlock::rdma), published.depth).writes_per_s;
  const double by_tcp = figures_of(fitted_cost(published_block(), &PublishedBlock::tcp), published.depth).writes_per_s;
  return fmt::format("| {} | {} | {} | {:.2f} | {} |\n", published.depth, factors(&PublishedBlock::rdma),
                     factors(&PublishedBlock::tcp),
                     by_rdma / by_tcp * published.tcp.writes_per_s / published.rdma.writes_per_s,
                     is_fitted(published) ? "fitted" : "predicted");
}

int run_project(const ProjectOptions& options) {
  return options.load == ProjectedLoad::block ? project_block_table(options) : project_call_table(options);
}

}  // namespace hawser::cli::lab
