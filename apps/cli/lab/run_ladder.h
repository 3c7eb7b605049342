#pragma once

#include <vector>

#include "cli/lab/options.h"
#include "lab/steps/ladder.h"

namespace hawser::cli::lab {

struct LadderCommand {
  hawser::lab::LadderOptions ladder;
  std::vector<unsigned> steps;  // Steps to run; empty: all.
};

// Returns the program's exit status.
int run_ladder(const CommonOptions& common, const LadderCommand& options);

}  // namespace hawser::cli::lab
