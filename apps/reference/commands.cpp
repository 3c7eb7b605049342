#include "reference/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "reference/reference.h"

namespace hawser::cli {
namespace {

constexpr int wrong_options_status = 2;

}  // namespace

int run_commands(const std::string& name, const std::string& description, std::span<const ProgramCommand> commands,
                 std::vector<std::string> words) {
  CLI::App app(description, name);
  app.set_version_flag("--version", HAWSER_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::function<int()>>> runs;
  for (const ProgramCommand& command : commands) {
    CLI::App* const added = app.add_subcommand(command.name, command.description);
    runs.emplace_back(added, command.add(*added));
  }
  HelpCommand help(app);
  const std::string given = words.empty() ? "no command" : fmt::format("\"{}\" is not a command", words.front());
  try {
    std::ranges::reverse(words);  // The order that parse() expects.
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // Help, or the version.
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty()) {
      fmt::print(stderr, "{0}: {1}: {0} --help lists them\n", name, given);
    } else {
      fmt::print(stderr, "{0}: {1}\n{0} {2} --help lists the options.\n", name, error.what(),
                 app.get_subcommands().front()->get_name());
    }
    return wrong_options_status;
  }
  if (help.parsed()) return help.run();
  for (const auto& [command, run] : runs) {
    if (command->parsed()) return run();
  }
  return wrong_options_status;
}

}  // namespace hawser::cli
