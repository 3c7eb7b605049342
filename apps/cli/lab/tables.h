#pragma once

#include <string>

#include "cli/lab/lab_file.h"

namespace hawser::cli::lab {

// For people, and Markdown as well.
std::string ladder_heading();
std::string ladder_line(const LadderRow& row);
// All rows of one experiment, one line for each x, one column for each series.
std::string study_table(const LabFile& file, char experiment);
std::string model_table(const FittedModel& fitted);
// Says that no device has done this; empty if one has.
std::string simulated_notice(const LabFile& file);

}  // namespace hawser::cli::lab
