#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "hawser/loop.h"

namespace hawser::block {

// Executes a command after its options have been parsed. Returns the exit status.
using Run = std::function<int()>;

// Exit status for wrong options. The commands use 0 and 1; `scrub` uses 3 if blocks are damaged.
inline constexpr int wrong_options_status = 2;
inline constexpr int damaged_status = 3;

// Adds --wait: how the loops of a server wait when they have no work.
void add_wait(CLI::App& command, Wait& wait);

// Each function adds the options of its command to `command` and returns the function that executes it.
Run add_serve(CLI::App& command);
Run add_create(CLI::App& command);
Run add_list(CLI::App& command);
Run add_info(CLI::App& command);
Run add_resize(CLI::App& command);
Run add_remove(CLI::App& command);
Run add_scrub(CLI::App& command);
Run add_measure(CLI::App& command);
Run add_nbd(CLI::App& command);
Run add_ublk(CLI::App& command);

}  // namespace hawser::block
