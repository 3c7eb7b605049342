#include <string>
#include <vector>

#include "cli/command.h"
#include "process/program.h"
#include "reference/commands.h"
#include "tls/core_dumps.h"

namespace {

constexpr hawser::cli::ProgramCommand commands[] = {
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
  return hawser::cli::run_commands(
      "hawser", "Calls, examines and measures servers and machines. hawser-bench has the benchmarks.", commands,
      words_of(argc, argv));
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::process::run("hawser", [&] { return run_command(argc, argv); });
}
