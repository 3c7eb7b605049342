#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace hawser::cli {

// A manual page of `command`, which may be the program itself, made of its options. `name` is the full name, such as
// "hawser call".
std::string man_page(const CLI::App& command, const std::string& name);
// A completion function for bash: commands, options, and the values of options that are limited to some.
std::string bash_completion(const CLI::App& program);

}  // namespace hawser::cli
