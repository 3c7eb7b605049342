#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/results/run_file.h"
#include "bench/run/cell.h"

namespace hawser::bench {

// The results of one system of one file in a group.
struct PageSeries {
  std::string label;  // The system's name, with the file's number if several files have the system.
  std::string system;
  std::size_t run = 0;  // Index of the file.
  std::vector<CellResult> results;

  // Returns null if there is no such result.
  const CellResult* find(std::size_t size_bytes, unsigned concurrency) const noexcept;
};

// Results that can be compared: they differ in system, size and concurrency only.
struct PageGroup {
  std::string transport;
  Mode mode = Mode::pipeline;
  Wait wait = Wait::spin;
  std::string reply;
  std::vector<PageSeries> series;        // The system "hawser" is first.
  std::vector<std::size_t> sizes_bytes;  // In ascending order, as are the concurrencies.
  std::vector<unsigned> concurrencies;

  // Returns Hawser's results that `peer` is compared with: from the same file, else the first. Null if there are none.
  const PageSeries* ours_for(const PageSeries& peer) const noexcept;
  bool has_ratios() const noexcept;
};

std::vector<PageGroup> group_runs(std::span<const RunFile> runs);

}  // namespace hawser::bench
