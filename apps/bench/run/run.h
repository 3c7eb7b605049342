#pragma once

#include "bench/run/options.h"

namespace hawser::bench {

// Each function returns the program's exit status: 0 if every cell was measured without an error.

// Server and client are two processes of this machine.
int run_both(RunOptions options);
// The same with the baseline: the limits of this machine.
int run_limit(RunOptions options);
// The client alone, with a server elsewhere.
int run_client(RunOptions options);
// The server alone, until it is interrupted.
int run_server(RunOptions options);

inline constexpr int failed_status = 1;
inline constexpr int wrong_options_status = 2;
inline constexpr int interrupted_status = 130;

}  // namespace hawser::bench
