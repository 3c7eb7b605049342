#pragma once

#include <string>
#include <vector>

#include "cli/lab/lab_file.h"
#include "report/legend.h"

namespace hawser::cli::lab {

// A drawing of the report.
struct Figure {
  std::string name;  // For files: "send-bw-unack" and the like.
  std::string svg;
  std::vector<report::LegendEntry> legend;
  bool wide = false;  // Takes the place of two on a page.
};

// The ladder's bars of a file; none without its figures.
std::vector<Figure> ladder_figures(const LabFile& file);
// The figures of an experiment, measured and by the model; none without its figures.
std::vector<Figure> study_figures(const LabFile& file, char experiment);

}  // namespace hawser::cli::lab
