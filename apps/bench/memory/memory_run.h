#pragma once

#include "bench/run/options.h"

namespace hawser::bench {

// Measures reads or writes of another process's memory. Returns the exit status.
int run_memory(RunOptions options);

}  // namespace hawser::bench
