#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace hawser::cli {

// Executes a command after its options have been parsed. Returns the exit status.
using Run = std::function<int()>;

// Exit status for wrong options, the same as in hawser-bench. The other statuses depend on the command.
inline constexpr int wrong_options_status = 2;

// Each function adds the options of its command to `command` and returns the function that executes it.
Run add_call(CLI::App& command);
Run add_demo(CLI::App& command);
Run add_describe(CLI::App& command);
Run add_doctor(CLI::App& command);
Run add_health(CLI::App& command);
Run add_lab(CLI::App& command);
Run add_list(CLI::App& command);
Run add_load(CLI::App& command);
Run add_ping(CLI::App& command);
Run add_record(CLI::App& command);
Run add_replay(CLI::App& command);
Run add_top(CLI::App& command);

}  // namespace hawser::cli
