#pragma once

#include <span>
#include <string>

#include "bench/results/run_file.h"
#include "bench/run/options.h"

namespace hawser::bench {

// A page with tables and plots of everything that is in `runs`; it needs nothing from elsewhere, and is XML too.
std::string page_of(std::span<const RunFile> runs);

// Writes the page of Options::report_inputs. The program's exit status.
int run_report(Options options);

}  // namespace hawser::bench
