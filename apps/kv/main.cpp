#include <string>
#include <vector>

#include "kv/command.h"
#include "process/program.h"
#include "reference/commands.h"
#include "tls/core_dumps.h"

namespace {

constexpr hawser::cli::ProgramCommand commands[] = {
    {"serve", "Serve a key-value store, to clients of Redis and to hawser::kv", hawser::kv::add_serve},
    {"get", "Print the value of a key; exit status 3 if it does not exist", hawser::kv::add_get},
    {"set", "Set the value of a key", hawser::kv::add_set},
    {"bench", "Measure a running server with the workloads of YCSB", hawser::kv::add_bench},
    {"compare", "Measure hawser-kv beside redis-server and memcached on this machine", hawser::kv::add_compare},
};

int run_command(int argc, char** argv) {
  hawser::programs::leave_secrets_out_of_core_dumps("hawser-kv");
  return hawser::cli::run_commands("hawser-kv", "A key-value store in memory on Hawser.", commands,
                                   std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::process::run("hawser-kv", [&] { return run_command(argc, argv); });
}
