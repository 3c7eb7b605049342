#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace hawser::cli {

// What a command does once its options are read: gives the exit status.
using Run = std::function<int()>;

// wrong_options_status as hawser-bench has it; 0 and 1 belong to the commands.
inline constexpr int wrong_options_status = 2;

// One for each command: adds its options to `command` and gives what runs it.
Run add_doctor(CLI::App& command);
Run add_lab(CLI::App& command);

}  // namespace hawser::cli
