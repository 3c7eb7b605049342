#pragma once

#include <string>
#include <vector>

#include "cli/lab/lab_file.h"
#include "report/legend.h"

namespace hawser::cli::lab {

// A drawing of the report.
struct Figure {
  std::string name;  // Base of file names, such as "send-bw-unack".
  std::string svg;
  std::vector<report::LegendEntry> legend;
  bool wide = false;  // Uses the space of two figures on a page.
};

// Returns the bar charts of a file's ladder; none if the file has no ladder.
std::vector<Figure> ladder_figures(const LabFile& file);
// Returns the figures of an experiment, measured and predicted; none if the file does not have the experiment.
std::vector<Figure> study_figures(const LabFile& file, char experiment);

}  // namespace hawser::cli::lab
