#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/demo/protocols.h"

// A build without protobuf.
namespace hawser::cli {

int show_calls(const std::string&, Duration) {
  fmt::print(stderr,
             "hawser demo client: needs protobuf, which this build does not have: install libprotobuf-dev and "
             "protobuf-compiler and build it again\n");
  return wrong_options_status;
}

}  // namespace hawser::cli
