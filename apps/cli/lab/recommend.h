#pragma once

#include <string>
#include <vector>

#include "cli/lab/lab_file.h"

namespace hawser::cli::lab {

// A field of RdmaOptions with the value that the figures suggest.
struct Recommendation {
  std::string option;
  std::string value;
  std::string reason;
};

// Returns the recommendations for which there are enough figures. Each comes from the first file that has them.
std::vector<Recommendation> recommend(const std::vector<LabFile>& files);

}  // namespace hawser::cli::lab
