#include "cli/doctor/serve.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "process/program.h"

namespace hawser::cli::doctor {
namespace host {

HostFacts facts() { return read_host(SystemFiles(), *transport::rdma::system_verbs()); }

std::uint32_t absorb(std::string_view block) { return static_cast<std::uint32_t>(block.size()); }

Result<std::string_view> produce(std::uint32_t bytes) {
  static const std::string block(block_bytes, 'x');
  if (bytes > block.size()) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("a block of {} bytes was requested: at most {} bytes are sent", bytes, block.size()));
  }
  return std::string_view(block).substr(0, bytes);
}

}  // namespace host

ServerOptions host_server_options(const std::string& listen) {
  constexpr std::size_t connections_max = 16;
  ServerOptions options;
  options.listen = listen;
  options.connections_max = connections_max;
  options.calls_per_connection_max = 16;
  options.calls_max = 64;
  options.message_bytes_max = std::size_t{4} << 20;
  options.receive_bytes_max = std::size_t{64} << 20;
  options.handshakes_max = connections_max;
  options.loop.log = stderr_log(LogLevel::error);
  options.transports.enable(rdma());
  options.transports.enable(ucx());
  return options;
}

void add_host_methods(Server& server) {
  server.register_handler<host::facts>();
  server.register_handler<host::absorb>();
  server.register_handler<host::produce>();
}

int serve_host(const std::string& listen, unsigned seconds) {
  const sigset_t ends = process::ending_signals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  Server server(host_server_options(listen));
  add_host_methods(server);
  if (const Result<void> started = server.start(); !started) {
    fmt::print(stderr, "hawser doctor --serve: {}\n", started.error().text);
    return 1;
  }
  fmt::print(
      "listening on {} for {} s\n"
      "Run on the other host: hawser doctor --peer HOST:PORT, with an address of this host.\n"
      "Whoever reaches this port sees this host's interfaces and RDMA devices, and may send data. Stop it with "
      "Ctrl-C.\n",
      server.address(), seconds);
  std::fflush(stdout);
  const timespec until{.tv_sec = static_cast<std::time_t>(seconds), .tv_nsec = 0};
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += until.tv_sec;
  // Signals other than these two may interrupt the wait.
  for (timespec left = until; sigtimedwait(&ends, nullptr, &left) < 0 && errno == EINTR;) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    left = {.tv_sec = end.tv_sec > now.tv_sec ? end.tv_sec - now.tv_sec : 0, .tv_nsec = 0};
  }
  server.stop();
  return 0;
}

}  // namespace hawser::cli::doctor
