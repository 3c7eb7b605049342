#pragma once

#include <string>
#include <vector>

#include "report/line_chart.h"

namespace hawser::report {

// Horizontal bars from 0, one below the other, as an SVG element.
struct BarChart {
  struct Bar {
    std::string label;
    double value = 0;
    double spread = 0;  // Drawn as a line of this length in both directions.
    double mark = 0;    // A reference value. Not drawn unless positive.
    unsigned colour = 0;
  };

  std::string title;
  Quantity quantity = Quantity::gbit_per_s;
  std::vector<Bar> bars;

  std::string svg() const;
};

}  // namespace hawser::report
