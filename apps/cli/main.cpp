#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"

namespace {

struct Command {
  const char* name;
  const char* description;
  hawser::cli::Run (*add)(CLI::App&);
};

constexpr Command commands[] = {
    {"demo", "Serve example services, to be called by curl, gRPC and bRPC clients", hawser::cli::add_demo},
    {"doctor", "Say what TCP, shared memory and RDMA can do on this machine, and what is in their way",
     hawser::cli::add_doctor},
    {"lab", "Measure what verbs can do on a device, real or simulated, and what limits them", hawser::cli::add_lab},
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What an operator of Hawser needs. Measuring is hawser-bench's.", "hawser");
  app.set_version_flag("--version", HAWSER_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, hawser::cli::Run>> runs;
  for (const Command& command : commands) {
    CLI::App* added = app.add_subcommand(command.name, command.description);
    runs.emplace_back(added, command.add(*added));
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // Help, or the version.
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty()) {
      const std::string given = argc > 1 ? fmt::format("\"{}\" is no command", argv[1]) : "no command";
      fmt::print(stderr, "hawser: {}: hawser --help lists them\n", given);
    } else {
      const std::string name = app.get_subcommands().front()->get_name();
      fmt::print(stderr, "hawser: {}\nhawser {} --help lists the options.\n", error.what(), name);
    }
    return hawser::cli::wrong_options_status;
  }
  for (const auto& [command, run] : runs) {
    if (command->parsed()) return run();
  }
  return hawser::cli::wrong_options_status;
}
