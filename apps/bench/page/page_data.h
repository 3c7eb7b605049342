#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/results/run_file.h"
#include "bench/run/cell.h"

namespace hawser::bench {

// What one system of one file has to show in a group.
struct PageSeries {
  std::string label;  // The system, with the file's number where several have it.
  std::string system;
  std::size_t run = 0;  // Among the files.
  std::vector<CellResult> results;

  // Null if there is none.
  const CellResult* find(std::size_t size_bytes, unsigned concurrency) const noexcept;
};

// Results that can be set side by side: they differ in system, size and concurrency only.
struct PageGroup {
  std::string transport;
  Mode mode = Mode::pipeline;
  Wait wait = Wait::spin;
  std::string reply;
  std::vector<PageSeries> series;        // Ours first.
  std::vector<std::size_t> sizes_bytes;  // Ascending, as are the next.
  std::vector<unsigned> concurrencies;

  // Ours that `peer` is compared with: that of its file, else the first. Null if there is none.
  const PageSeries* ours_for(const PageSeries& peer) const noexcept;
  bool has_ratios() const noexcept;
};

std::vector<PageGroup> group_runs(std::span<const RunFile> runs);

}  // namespace hawser::bench
