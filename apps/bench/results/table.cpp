#include "bench/results/table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "bench/load/size.h"

namespace hawser::bench {
namespace {

constexpr std::string_view text_row_format =
    "| {:>12} | {:>11} | {:>17} | {:>8} | {:>8} | {:>8} | {:>10} | {:>9} | {:>6} | {:>12} | {:>12} |\n";

std::string text_row(const auto&... columns) { return fmt::format(fmt::runtime(text_row_format), columns...); }

std::string text_heading(const Cell& cell) {
  std::string text = fmt::format("{}, {}, {}\n\n", cell.transport, to_string(cell.mode), to_string(cell.wait));
  text += text_row("Request size", "Concurrency", "Throughput (Gb/s)", "P50 (us)", "P90 (us)", "P99 (us)", "P99.9 (us)",
                   "Calls/s", "Errors", "Server s/M*", "Client s/M*");
  text += text_row("---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:");
  return text;
}

std::string text_of_seconds_per_million(double seconds, std::uint64_t calls) {
  return calls == 0 ? "-" : fmt::format("{:.2f}", seconds * 1e6 / static_cast<double>(calls));
}

}  // namespace

std::string microseconds_text(double time) {
  return time < 99.95 ? fmt::format("{:.1f}", time) : fmt::format("{:.0f}", time);
}

std::string with_thousands(double number) {
  std::string digits = std::to_string(std::llround(number));
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string TextTable::add(const CellResult& result) {
  const Cell& cell = result.cell;
  const bool same_table = previous_ && previous_->transport == cell.transport && previous_->mode == cell.mode &&
                          previous_->wait == cell.wait;
  std::string lines;
  if (!same_table) {
    if (previous_) lines = "\n";
    lines += text_heading(cell);
  }
  const bool same_size = same_table && previous_->size_bytes == cell.size_bytes;
  const std::string marked = result.calls_at_once < cell.concurrency
                                 ? fmt::format("{} ({})", cell.concurrency, result.calls_at_once)
                                 : fmt::format("{}", cell.concurrency);
  lines += text_row(same_size ? std::string() : format_size(cell.size_bytes), marked,
                    fmt::format("{:.2f}", result.gbit_per_s()), microseconds_text(result.p50_us),
                    microseconds_text(result.p90_us), microseconds_text(result.p99_us),
                    microseconds_text(result.p999_us), with_thousands(result.calls_per_s()), result.errors,
                    text_of_seconds_per_million(result.server_cpu_s, result.calls),
                    text_of_seconds_per_million(result.client_cpu_s, result.calls));
  previous_ = cell;
  return lines;
}

}  // namespace hawser::bench
