#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/loop.h"

namespace hawser::bench {

// Distribution of the calls in flight over connections.
enum class Mode : std::uint8_t {
  pipeline,     // All calls on one connection.
  connections,  // One call on each connection.
  threads,      // One thread for each call, which blocks. All threads share one connection, unless the system's name
                // says otherwise.
};
std::string_view to_string(Mode mode) noexcept;
std::optional<Mode> parse_mode(std::string_view text) noexcept;

std::string_view to_string(Wait wait) noexcept;
std::optional<Wait> parse_wait(std::string_view text) noexcept;

// Parameters of one line of the table.
struct Cell {
  std::string transport = "tcp";
  Mode mode = Mode::pipeline;
  Wait wait = Wait::spin;
  std::size_t size_bytes = 0;
  unsigned concurrency = 1;
};

// Result of a cell. Latencies are those of the calls that ended successfully within `seconds`.
struct CellResult {
  std::string system = "hawser";
  Cell cell;
  unsigned repetition = 0;  // From 1. 0: the only result, or the medians of several.
  double seconds = 0;
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;  // Calls that failed or had a wrong reply, during the warm-up too.
  double p50_us = 0;
  double p90_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double server_cpu_s = 0;  // User and system time of the whole process within `seconds`.
  double client_cpu_s = 0;
  unsigned calls_at_once = 0;  // Less than the concurrency if RunOptions::bytes_in_flight_max does not allow more.
  std::string first_error;     // Text of the first error.

  double calls_per_s() const noexcept { return seconds > 0 ? static_cast<double>(calls) / seconds : 0; }
  // Counts the payload in one direction.
  double gbit_per_s() const noexcept { return calls_per_s() * static_cast<double>(cell.size_bytes) * 8 / 1e9; }
};

}  // namespace hawser::bench
