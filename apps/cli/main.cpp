#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "process/program.h"
#include "reference/reference.h"
#include "tls/core_dumps.h"

namespace {

struct Command {
  const char* name;
  const char* description;
  hawser::cli::Run (*add)(CLI::App&);
};

constexpr Command commands[] = {
    {"call", "Call a method of a server, with JSON", hawser::cli::add_call},
    {"list", "List the methods of a server", hawser::cli::add_list},
    {"describe", "Describe the methods and types of a server", hawser::cli::add_describe},
    {"health", "Report whether a server serves", hawser::cli::add_health},
    {"load", "Call a method at a given rate and measure the latencies", hawser::cli::add_load},
    {"ping", "Measure the round trip to a server, over each transport", hawser::cli::add_ping},
    {"record", "Record requests of a running server into a file", hawser::cli::add_record},
    {"replay", "Send the requests of a recording to a server, and compare the outcomes", hawser::cli::add_replay},
    {"top", "Show the methods, connections and loops of a server, updated each second", hawser::cli::add_top},
    {"demo", "Serve example services to clients of Hawser, gRPC, bRPC and HTTP", hawser::cli::add_demo},
    {"doctor", "Report which transports work on this machine, and how to fix the others", hawser::cli::add_doctor},
    {"lab", "Measure RDMA verbs on a real or simulated device, and name the bottleneck", hawser::cli::add_lab},
};

// CLI11 takes an argument of several, such as [1,2], for a list of them. It is JSON, which may end with a blank.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words.front() != "call") return words;
  for (std::string& word : words) {
    if (word.starts_with('[') && word.ends_with(']')) word += ' ';
  }
  return words;
}

int run_command(int argc, char** argv) {
  hawser::programs::leave_secrets_out_of_core_dumps("hawser");
  CLI::App app("Calls, examines and measures servers and machines. hawser-bench has the benchmarks.", "hawser");
  app.set_version_flag("--version", HAWSER_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, hawser::cli::Run>> runs;
  for (const Command& command : commands) {
    CLI::App* added = app.add_subcommand(command.name, command.description);
    runs.emplace_back(added, command.add(*added));
  }
  hawser::cli::HelpCommand help(app);

  try {
    std::vector<std::string> words = words_of(argc, argv);
    std::ranges::reverse(words);  // The order that parse() expects.
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // Help, or the version.
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty()) {
      const std::string given = argc > 1 ? fmt::format("\"{}\" is not a command", argv[1]) : "no command";
      fmt::print(stderr, "hawser: {}: hawser --help lists them\n", given);
    } else {
      const std::string name = app.get_subcommands().front()->get_name();
      fmt::print(stderr, "hawser: {}\nhawser {} --help lists the options.\n", error.what(), name);
    }
    return hawser::cli::wrong_options_status;
  }
  if (help.parsed()) return help.run();
  for (const auto& [command, run] : runs) {
    if (command->parsed()) return run();
  }
  return hawser::cli::wrong_options_status;
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::programs::run("hawser", [&] { return run_command(argc, argv); });
}
