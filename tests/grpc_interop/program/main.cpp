#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "hawser/grpc.h"
#include "hawser/grpc_health.h"
#include "hawser/grpc_reflection.h"
#include "hawser/hawser.h"
#include "tests/grpc_interop/cases.h"
#include "tests/grpc_interop/service.h"

// gRPC's interoperability tests by hand, with servers and clients of other libraries.
namespace {

int serve(const std::string& address) {
  hawser::grpc_interop::Service service;
  hawser::ServerOptions options;
  options.listen = address;
  hawser::Server server(options);
  service.add_to(server);
  hawser::add_grpc_reflection(server);
  server.enable(hawser::grpc());
  if (const auto started = server.start(); !started) {
    std::puts(started.error().describe().c_str());
    return 1;
  }
  std::printf("listening on %s\n", server.address().c_str());
  std::fflush(stdout);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

int call(const std::string& address, std::string_view chosen) {
  int failed = 0;
  int run = 0;
  for (const std::string_view name : hawser::grpc_interop::case_names()) {
    if (chosen != "all" && chosen != name) continue;
    ++run;
    const std::string failure = hawser::grpc_interop::run_case(name, address);
    failed += failure.empty() ? 0 : 1;
    std::printf("%.*s: %s\n", static_cast<int>(name.size()), name.data(), failure.empty() ? "ok" : failure.c_str());
  }
  if (run == 0) std::printf("there is no case %.*s\n", static_cast<int>(chosen.size()), chosen.data());
  return failed != 0 || run == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "serve" && argc == 3) {
    // Blocked in each thread that the server starts.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    return serve(argv[2]);
  }
  if (role == "call" && argc == 4) return call(argv[2], argv[3]);
  std::puts("usage: hawser_grpc_interop serve HOST:PORT | call HOST:PORT CASE|all");
  return 2;
}
