#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bench/run/cell.h"

namespace hawser::bench {

// The results as a table for people, line by line as they come. It is Markdown as well.
class Table {
 public:
  // The lines for one more result: a heading where transport, mode or way of waiting change, then its row.
  std::string add(const CellResult& result);

 private:
  std::optional<Cell> previous_;
};

// "9.9", "210".
std::string microseconds_text(double time);
// "1,533,744".
std::string with_thousands(double number);

}  // namespace hawser::bench
