#pragma once

#include <cstddef>
#include <expected>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/cell.h"

namespace hawser::bench {

// A result of `hawser-bench memory`. Numbers that the file lacks are 0.
struct MemoryResult {
  std::string system;
  std::string transport;
  std::string op;
  std::string priority;
  std::size_t block_bytes = 0;
  unsigned batch = 0;  // Blocks of a batch.
  unsigned depth = 0;  // Batches in flight on each path.
  unsigned clients = 1;
  unsigned owners = 1;
  bool scattered = false;
  double gbit_per_s = 0;
  double alone_gbit_per_s = 0;  // Without the calls beside them.
  double post_us = 0;
  double p50_us = 0;  // Time of a batch, as the next one.
  double p99_us = 0;
  double call_alone_p99_us = 0;
  double call_beside_p99_us = 0;
};

// Content of a file that --json has written.
struct RunFile {
  std::string name;  // File name without its folder.
  std::string reply;
  std::vector<std::pair<std::string, std::string>> meta;  // In the order of the file.
  std::vector<CellResult> results;
  std::vector<MemoryResult> memory = {};
};

// On error returns the reason.
std::expected<RunFile, std::string> read_run_file(const std::string& path);

}  // namespace hawser::bench
