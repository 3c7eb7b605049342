#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/loop.h"

namespace hawser::bench {

// How calls are kept in flight at once.
enum class Mode : std::uint8_t {
  pipeline,     // All on one connection.
  connections,  // One on each of as many connections.
};
std::string_view to_string(Mode mode) noexcept;
std::optional<Mode> parse_mode(std::string_view text) noexcept;

std::string_view to_string(Wait wait) noexcept;
std::optional<Wait> parse_wait(std::string_view text) noexcept;

// One line of the table: what is measured.
struct Cell {
  std::string transport = "tcp";
  Mode mode = Mode::pipeline;
  Wait wait = Wait::spin;
  std::size_t size_bytes = 0;
  unsigned concurrency = 1;
};

// And what came out. Latencies are of the calls that ended well within `seconds`.
struct CellResult {
  std::string system = "hawser";
  Cell cell;
  unsigned repetition = 0;  // From 1; 0: the only one, or the medians of several.
  double seconds = 0;
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;  // Calls that failed, or whose reply was wrong; warm-up included.
  double p50_us = 0;
  double p90_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double server_cpu_s = 0;  // Of the whole process, user and system, within `seconds`.
  double client_cpu_s = 0;
  unsigned calls_at_once = 0;  // Less than the concurrency where memory forbids more, see Options::bytes_in_flight_max.
  std::string first_error;     // What the first error said.

  double calls_per_s() const noexcept { return seconds > 0 ? static_cast<double>(calls) / seconds : 0; }
  // Payload in one direction.
  double gbit_per_s() const noexcept { return calls_per_s() * static_cast<double>(cell.size_bytes) * 8 / 1e9; }
};

}  // namespace hawser::bench
