#pragma once

#include <string>
#include <vector>

#include "cli/lab/lab_file.h"

namespace hawser::cli::lab {

// A field of RdmaOptions, with what the figures say for it.
struct Recommendation {
  std::string option;
  std::string value;
  std::string reason;
};

// What the figures are enough for; of several files, the first that says something.
std::vector<Recommendation> recommend(const std::vector<LabFile>& files);

}  // namespace hawser::cli::lab
