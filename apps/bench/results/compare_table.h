#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/run/cell.h"

namespace hawser::bench {

// Results of several systems as a table, cell by cell. The text is readable as it is, and is Markdown.
class CompareTable {
 public:
  // Returns the lines for one more cell: a heading when transport, mode or way of waiting change, then a row for each
  // system. The first system is Hawser.
  std::string add(std::span<const CellResult> systems);

 private:
  std::optional<Cell> previous_;
};

}  // namespace hawser::bench
