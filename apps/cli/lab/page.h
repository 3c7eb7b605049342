#pragma once

#include <string>
#include <vector>

#include "cli/lab/figures.h"
#include "cli/lab/lab_file.h"

namespace hawser::cli::lab {

// Returns a page with all figures and tables of `files`. The page loads nothing and is valid XML.
std::string page_of(const std::vector<LabFile>& files);
// Returns the figures alone, in the order of the page.
std::vector<Figure> figures_of(const std::vector<LabFile>& files);

struct ReportOptions {
  std::vector<std::string> inputs;  // Files that --json has written.
  std::string output = "lab.html";
  std::string svg_folder;  // Folder for each figure as SVG; empty: none.
  std::string png_folder;  // Folder for each figure as PNG, drawn by a browser or rsvg-convert; empty: none.
};
// Returns the program's exit status.
int run_report(const ReportOptions& options);

}  // namespace hawser::cli::lab
