#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>
#include <vector>

#include "block/command.h"
#include "process/program.h"
#include "reference/reference.h"

namespace {

struct Command {
  const char* name;
  const char* description;
  hawser::block::Run (*add)(CLI::App&);
};

constexpr Command commands[] = {
    {"serve", "Serve the volumes of a folder, or volumes in memory", hawser::block::add_serve},
    {"create", "Make a volume", hawser::block::add_create},
    {"list", "List the volumes of a server", hawser::block::add_list},
    {"info", "Show the state of a volume", hawser::block::add_info},
    {"resize", "Change the size of a volume", hawser::block::add_resize},
    {"remove", "Remove a volume and its data", hawser::block::add_remove},
    {"scrub", "Verify all blocks of a volume; exit status 3 if some are damaged", hawser::block::add_scrub},
};

int run_command(int argc, char** argv) {
  CLI::App app("A server of volumes of blocks on Hawser.", "hawser-block");
  app.set_version_flag("--version", HAWSER_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, hawser::block::Run>> runs;
  for (const Command& command : commands) {
    CLI::App* added = app.add_subcommand(command.name, command.description);
    runs.emplace_back(added, command.add(*added));
  }
  hawser::cli::HelpCommand help(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // Help, or the version.
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "hawser-block: {}\nhawser-block --help lists the commands and options.\n", error.what());
    return hawser::block::wrong_options_status;
  }
  if (help.parsed()) return help.run();
  for (const auto& [command, run] : runs) {
    if (command->parsed()) return run();
  }
  return hawser::block::wrong_options_status;
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::programs::run("hawser-block", [&] { return run_command(argc, argv); });
}
