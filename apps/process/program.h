#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string_view>

namespace hawser::process {

inline constexpr int failed_status = 1;

// Runs a program; main() returns the result, which is the exit status of `body`. Before it, the standard descriptors
// are opened if they are closed, and SIGPIPE and SIGXFSZ are ignored: a write that fails reports an error and does not
// end the program. An exception of `body`, and standard output that has not taken everything, end the program with one
// line on stderr and failed_status.
int run(const char* program, const std::function<int()>& body) noexcept;

// The signals that end a server in order: SIGINT, SIGTERM, and SIGHUP, which a terminal sends when it closes. Without
// SIGHUP if who started the program ignores it (nohup). A server blocks them before it starts threads, and waits for
// them.
sigset_t ending_signals() noexcept;

// Called in a child before exec: its program writes nothing to standard output and error, and the signals that run()
// ignores have their default action.
void discard_output() noexcept;

// Writes a line of a server to standard output at once. What standard output does not take is lost, and does not change
// the exit status: a server serves without it.
void announce(std::string_view line) noexcept;

// Raises the limit of open files to `descriptors`, or as far as the system permits without more rights.
void raise_descriptor_limit(std::uint64_t descriptors) noexcept;

// True after a write to standard output has failed, for programs that write until somebody ends them.
bool output_lost() noexcept;

}  // namespace hawser::process
