#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace hawser::cli {

// A manual page of `command`, which may be the program itself, made of its options. `name` is the full name, such as
// "hawser call".
std::string man_page(const CLI::App& command, const std::string& name);

// The values of an option that has a list of them.
std::vector<std::string> values_of(const CLI::Option& option);

// Completion functions of a program: commands, options, and the values of options that have a list of them.
std::string bash_completion(const CLI::App& program);
std::string zsh_completion(const CLI::App& program);
std::string fish_completion(const CLI::App& program);

// Writes a manual page of each command and the completions into the folder PREFIX/share, where man and the shells find
// them. Returns the error; empty: none.
std::string install_reference(const CLI::App& program, const std::string& prefix);

// The command `help` of a program.
class HelpCommand {
 public:
  // Adds it. `program` must outlive this object.
  explicit HelpCommand(CLI::App& program);
  bool parsed() const { return command_->parsed(); }
  // Returns the exit status.
  int run() const;

 private:
  const CLI::App& program_;
  CLI::App* const command_;
  std::vector<std::string> of_;
  bool man_ = false;
  std::string completion_;
  std::string install_;
};

}  // namespace hawser::cli
