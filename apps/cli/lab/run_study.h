#pragma once

#include "cli/lab/options.h"
#include "lab/model/study.h"

namespace hawser::cli::lab {

// Returns the program's exit status.
int run_study(const CommonOptions& common, const hawser::lab::StudyOptions& options);

}  // namespace hawser::cli::lab
