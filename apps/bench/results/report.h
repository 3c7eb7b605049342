#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/load/events.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Results of a run, with the information that a comparison with another run needs.
struct Report {
  std::vector<CellResult> results;
  // The results of which `results` has the medians, in the order of measuring. May be empty.
  std::vector<CellResult> repetitions;
  bool complete = false;                    // Every cell was measured.
  std::string started;                      // UTC, in the format of ISO 8601.
  Connected pollers;                        // Pollers that both sides really used.
  std::size_t server_memory_bytes_max = 0;  // 0: the server ran elsewhere, or its memory is not known.
  std::size_t client_memory_bytes_max = 0;
};

// Returns the current time in the format of Report::started.
std::string utc_now();

// Facts of this machine, this program and its options, for "meta" in the file of --json. `started`: see Report.
nlohmann::json environment_of(const RunOptions& options, const std::string& started);

// Each function writes a new file. Returns the error, or an empty string.
std::string write_json(const std::string& path, const Report& report, const RunOptions& options);
std::string write_csv(const std::string& path, const Report& report);
// Writes the files that `options` name.
std::string write_files(const Report& report, const RunOptions& options);
// Checks before the run that write_files() will be able to write. Returns the error, or an empty string.
std::string check_files(const RunOptions& options);
// Prints the first error, and its cell, to stderr. Returns whether there was one.
bool say_errors(const std::vector<CellResult>& results);

}  // namespace hawser::bench
