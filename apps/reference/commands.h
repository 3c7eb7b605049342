#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hawser::cli {

// A command of a program, such as `serve` of hawser-kv.
struct ProgramCommand {
  const char* name;
  const char* description;
  // Adds the options of the command, and returns the function that executes it and gives the exit status.
  std::function<int()> (*add)(CLI::App&);
};

// Executes the command that `words` name: the arguments of the program `name` without its own name. Returns the exit
// status: that of the command, 0 for help and the version, 2 for wrong options, which are reported on standard error.
int run_commands(const std::string& name, const std::string& description, std::span<const ProgramCommand> commands,
                 std::vector<std::string> words);

}  // namespace hawser::cli
