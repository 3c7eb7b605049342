#pragma once

#include <expected>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/cell.h"

namespace hawser::bench {

// Content of a file that --json has written.
struct RunFile {
  std::string name;  // File name without its folder.
  std::string reply;
  std::vector<std::pair<std::string, std::string>> meta;  // In the order of the file.
  std::vector<CellResult> results;
};

// On error returns the reason.
std::expected<RunFile, std::string> read_run_file(const std::string& path);

}  // namespace hawser::bench
