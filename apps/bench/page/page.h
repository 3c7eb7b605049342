#pragma once

#include <span>
#include <string>

#include "bench/results/run_file.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Returns a page with tables and plots of all results in `runs`. It is well-formed XML and refers to no other file.
std::string page_of(std::span<const RunFile> runs);

// Writes the page of RunOptions::report_inputs. Returns the program's exit status.
int run_report(RunOptions options);

}  // namespace hawser::bench
