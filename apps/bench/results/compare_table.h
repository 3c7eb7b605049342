#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/run/cell.h"

namespace hawser::bench {

// The results of several systems as a table for people, cell by cell. It is Markdown as well.
class CompareTable {
 public:
  // The lines for one more cell: a heading where transport, mode or way of waiting change, then a row for each system,
  // of which the first is ours.
  std::string add(std::span<const CellResult> systems);

 private:
  std::optional<Cell> previous_;
};

}  // namespace hawser::bench
