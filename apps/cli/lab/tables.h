#pragma once

#include <string>

#include "cli/lab/lab_file.h"

namespace hawser::cli::lab {

// The tables are readable text and valid Markdown.
std::string ladder_heading();
std::string ladder_line(const LadderRow& row);
// Returns the table of one experiment, with one line for each x and one column for each series.
std::string study_table(const LabFile& file, char experiment);
std::string model_table(const FittedModel& fitted);
// Returns a notice that the figures are simulated; empty if they were measured on a device.
std::string simulated_notice(const LabFile& file);

}  // namespace hawser::cli::lab
