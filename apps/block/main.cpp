#include <string>
#include <vector>

#include "block/command.h"
#include "process/program.h"
#include "reference/commands.h"

namespace {

constexpr hawser::cli::ProgramCommand commands[] = {
    {"serve", "Serve the volumes of a folder, or volumes in memory", hawser::block::add_serve},
    {"create", "Make a volume", hawser::block::add_create},
    {"list", "List the volumes of a server", hawser::block::add_list},
    {"info", "Show the state of a volume", hawser::block::add_info},
    {"resize", "Change the size of a volume", hawser::block::add_resize},
    {"remove", "Remove a volume and its data", hawser::block::add_remove},
    {"scrub", "Verify all blocks of a volume; exit status 3 if some are damaged", hawser::block::add_scrub},
    {"measure", "Measure reads or writes of a volume at random places", hawser::block::add_measure},
    {"nbd", "Serve the volumes of a server to clients of NBD", hawser::block::add_nbd},
    {"ublk", "Serve a volume of a server as a block device of this machine's kernel", hawser::block::add_ublk},
};

int run_command(int argc, char** argv) {
  return hawser::cli::run_commands("hawser-block", "A server of volumes of blocks on Hawser.", commands,
                                   std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::process::run("hawser-block", [&] { return run_command(argc, argv); });
}
