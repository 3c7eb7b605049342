#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/memory/memory_run.h"
#include "bench/page/page.h"
#include "bench/run/compare.h"
#include "bench/run/options.h"
#include "bench/run/run.h"
#include "process/program.h"
#include "reference/reference.h"
#include "tls/core_dumps.h"

namespace {

using hawser::bench::RunOptions;

struct BenchCommand {
  const char* name;
  const char* description;
  void (*add_options)(CLI::App&, RunOptions&);
  int (*run)(RunOptions);
};

constexpr BenchCommand commands[] = {
    {"run", "Measure on this machine, with server and client as two processes", hawser::bench::add_run_options,
     hawser::bench::run_both},
    {"baseline", "Measure what this machine can do: the same calls on bare sockets, without any RPC",
     hawser::bench::add_limit_options, hawser::bench::run_limit},
    {"compare", "Measure the same cells with other programs in turn, and print the ratios",
     hawser::bench::add_compare_options, hawser::bench::run_compare},
    {"memory", "Measure reads and writes of another process's memory", hawser::bench::add_memory_options,
     hawser::bench::run_memory},
    {"report", "Make an HTML page with tables and plots from the files that --json has written",
     hawser::bench::add_report_options, hawser::bench::run_report},
    {"server", "Run the server for a client on another machine", hawser::bench::add_server_options,
     hawser::bench::run_server},
    {"client", "Measure against a server on another machine", hawser::bench::add_client_options,
     hawser::bench::run_client},
};

constexpr int wrong_options_status = 2;

int run_command(int argc, char** argv) {
  hawser::programs::leave_secrets_out_of_core_dumps("hawser-bench");
  RunOptions options;
  for (int i = 0; i < argc; ++i) options.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);

  CLI::App app("Measures calls of Hawser: throughput, latency and processor time by size and concurrency.",
               "hawser-bench");
  app.set_version_flag("--version", HAWSER_VERSION);
  app.require_subcommand(1);
  for (const BenchCommand& command : commands)
    command.add_options(*app.add_subcommand(command.name, command.description), options);

  hawser::cli::HelpCommand help(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help or --version.
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty()) {
      const std::string given = argc > 1 ? fmt::format("\"{}\" is not a command", argv[1]) : "no command";
      fmt::print(stderr, "hawser-bench: {}: give run, baseline, compare, memory, report, server or client, or --help\n",
                 given);
    } else {
      fmt::print(stderr, "hawser-bench: {}\nhawser-bench {} --help lists the options.\n", error.what(),
                 app.get_subcommands().front()->get_name());
    }
    return wrong_options_status;
  }
  if (help.parsed()) return help.run();
  for (const BenchCommand& command : commands) {
    if (app.got_subcommand(command.name)) return command.run(options);
  }
  return wrong_options_status;
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::process::run("hawser-bench", [&] { return run_command(argc, argv); });
}
