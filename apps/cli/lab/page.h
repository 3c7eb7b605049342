#pragma once

#include <string>
#include <vector>

#include "cli/lab/figures.h"
#include "cli/lab/lab_file.h"

namespace hawser::cli::lab {

// A page with every figure and table of `files`; it needs nothing from elsewhere, and is XML too.
std::string page_of(const std::vector<LabFile>& files);
// The figures by themselves, in the page's order.
std::vector<Figure> figures_of(const std::vector<LabFile>& files);

struct ReportOptions {
  std::vector<std::string> inputs;  // Of --json.
  std::string output = "lab.html";
  std::string svg_folder;  // Empty: none. Else each figure becomes a file there,
  std::string png_folder;  // and a PNG there, by a browser or rsvg-convert.
};
// The program's exit status.
int run_report(const ReportOptions& options);

}  // namespace hawser::cli::lab
