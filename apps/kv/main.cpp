#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>
#include <vector>

#include "kv/command.h"
#include "process/program.h"
#include "reference/reference.h"
#include "tls/core_dumps.h"

namespace {

struct Command {
  const char* name;
  const char* description;
  hawser::kv::Run (*add)(CLI::App&);
};

constexpr Command commands[] = {
    {"serve", "Serve a key-value store, to clients of Redis and to hawser::kv", hawser::kv::add_serve},
    {"get", "Print the value of a key; exit status 3 if it does not exist", hawser::kv::add_get},
    {"set", "Set the value of a key", hawser::kv::add_set},
    {"bench", "Measure a running server with the workloads of YCSB", hawser::kv::add_bench},
    {"compare", "Measure hawser-kv beside redis-server and memcached on this machine", hawser::kv::add_compare},
};

int run_command(int argc, char** argv) {
  hawser::programs::leave_secrets_out_of_core_dumps("hawser-kv");
  CLI::App app("A key-value store in memory on Hawser.", "hawser-kv");
  app.set_version_flag("--version", HAWSER_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, hawser::kv::Run>> runs;
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
    fmt::print(stderr, "hawser-kv: {}\nhawser-kv --help lists the commands and options.\n", error.what());
    return hawser::kv::wrong_options_status;
  }
  if (help.parsed()) return help.run();
  for (const auto& [command, run] : runs) {
    if (command->parsed()) return run();
  }
  return hawser::kv::wrong_options_status;
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::programs::run("hawser-kv", [&] { return run_command(argc, argv); });
}
