#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bench/run/cell.h"

namespace hawser::bench {

// Results as a table, line by line as they arrive. The text is readable as it is, and is Markdown.
class TextTable {
 public:
  // Returns the lines for one more result: a heading when transport, mode or way of waiting change, then its row.
  std::string add(const CellResult& result);

 private:
  std::optional<Cell> previous_;
};

// For example "9.9" or "210".
std::string microseconds_text(double time);
// For example "1,533,744".
std::string with_thousands(double number);

}  // namespace hawser::bench
