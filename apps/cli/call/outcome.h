#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "cli/call/peer.h"
#include "hawser/error.h"

namespace hawser::cli {

// Exit statuses of the commands that call a server; docs/command-line.md lists them.
enum Status : int {
  succeeded = 0,
  refused = 1,        // The server answered with an error.
  wrong_options = 2,  // Also arguments that do not fit the method.
  no_connection = 3,
  too_late = 4,
  no_method = 5,  // The server has no such method, or does not describe it.
};
inline constexpr const char* statuses =
    "Exit status: 0 if the server answered, 1 if it answered with an error, 2 for wrong options or arguments, 3 if "
    "there "
    "is no connection, 4 if the time was over, 5 if there is no such method or no description of it.";

Status status_of(const Error& error) noexcept;

// Prints the output of a command.
struct Output {
  const char* command = "";
  bool json = false;

  // Prints a line. Control characters go to files and pipes only, never to a terminal.
  void line(std::string_view text) const;
  // Prints the error, as JSON to the standard output if that is wanted. Returns the status.
  int error(const Error& error) const;
  // The same for the error of looking up a method that the user named.
  int unknown_method(const Error& error) const;
};

// Adds the address and the options for reaching it.
void add_peer_options(CLI::App& command, PeerOptions& options, double& timeout_s);
Duration duration_of(double seconds);
// The text of an argument: that of the file for "@path", of the standard input for "-".
Result<std::string> read_argument(const std::string& given);

}  // namespace hawser::cli
