#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace hawser::kv {

// Executes a command after its options have been parsed. Returns the exit status.
using Run = std::function<int()>;

// Exit status for wrong options. The commands use 0 and 1; `get` uses 3 if the key does not exist.
inline constexpr int wrong_options_status = 2;

// Each function adds the options of its command to `command` and returns the function that executes it.
Run add_serve(CLI::App& command);
Run add_get(CLI::App& command);
Run add_set(CLI::App& command);
Run add_bench(CLI::App& command);
Run add_compare(CLI::App& command);

}  // namespace hawser::kv
