#pragma once

#include "bench/run/options.h"

namespace hawser::bench {

// Measures each cell with Hawser and with each peer in turn, several times. Prints the medians and the ratios of Hawser
// to the peers. Returns the program's exit status.
int run_compare(RunOptions options);

}  // namespace hawser::bench
