#pragma once

#include "bench/run/options.h"

namespace hawser::bench {

// Measures each cell with hawser and with each of the peers in turn, several times, and gives the medians and how much
// faster hawser is. The program's exit status.
int run_compare(Options options);

}  // namespace hawser::bench
