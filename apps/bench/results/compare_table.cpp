#include "bench/results/compare_table.h"

#include <fmt/format.h>

#include "bench/load/size.h"
#include "bench/results/medians.h"
#include "bench/results/table.h"

namespace hawser::bench {
namespace {

constexpr std::string_view row_format = "| {:>12} | {:>11} | {:<8} | {:>12} | {:>17} | {:>8} | {:>8} | {:>7} |\n";

std::string row(const auto&... columns) { return fmt::format(fmt::runtime(row_format), columns...); }

std::string heading(const Cell& cell) {
  std::string text = fmt::format("{}, {}, {}\n\n", cell.transport, to_string(cell.mode), to_string(cell.wait));
  text +=
      row("Request size", "Concurrency", "System", "Calls/s", "Throughput (Gb/s)", "P50 (us)", "P99 (us)", "Ratio*");
  text += row("---:", "---:", ":---", "---:", "---:", "---:", "---:", "---:");
  return text;
}

}  // namespace

std::string CompareTable::add(std::span<const CellResult> systems) {
  if (systems.empty()) return {};
  const CellResult& ours = systems.front();
  const Cell& cell = ours.cell;
  const bool same_table = previous_ && previous_->transport == cell.transport && previous_->mode == cell.mode &&
                          previous_->wait == cell.wait;
  std::string lines;
  if (!same_table) {
    if (previous_) lines = "\n";
    lines += heading(cell);
  }
  for (const CellResult& one : systems) {
    const bool first = &one == &ours;
    lines +=
        row(first ? format_size(cell.size_bytes) : "", first ? fmt::format("{}", cell.concurrency) : "", one.system,
            with_thousands(one.calls_per_s()), fmt::format("{:.2f}", one.gbit_per_s()), microseconds_text(one.p50_us),
            microseconds_text(one.p99_us), first ? "" : fmt::format("{:.2f}", ratio_of(ours, one)));
  }
  previous_ = cell;
  return lines;
}

}  // namespace hawser::bench
