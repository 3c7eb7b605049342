#pragma once

#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// What a run has found, with what one needs to know to compare it with another.
struct Report {
  std::vector<CellResult> results;
  std::vector<CellResult> repetitions;      // What `results` are the medians of, in the order of measuring; or empty.
  bool complete = false;                    // Every cell was measured.
  std::string started;                      // UTC, as ISO 8601 has it.
  Connected pollers;                        // Of both sides, as they were really used.
  std::size_t server_memory_bytes_max = 0;  // 0: the server was not ours to watch.
  std::size_t client_memory_bytes_max = 0;
};

// Now, as Report::started has it.
std::string utc_now();

// Each writes a file anew and gives what went wrong, or nothing.
std::string write_json(const std::string& path, const Report& report, const Options& options);
std::string write_csv(const std::string& path, const Report& report);
// The files that `options` ask for.
std::string write_files(const Report& report, const Options& options);
// What write_files() would find out late: whether they can be written. Gives what went wrong, or nothing.
std::string check_files(const Options& options);
// Says on stderr which cell had errors first, if one had.
bool say_errors(const std::vector<CellResult>& results);

}  // namespace hawser::bench
