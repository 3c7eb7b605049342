// Chapter 10 of the guide: a server whose next process takes over while clients call. Start it again with the same
// arguments: upgrade ADDRESS PATH.
#include <hawser/handover.h>
#include <hawser/hawser.h>
#include <hawser/service_manager.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

using namespace std::chrono_literals;

std::string greet(std::string_view name) { return "hello " + std::string(name); }

int failed(const hawser::Error& error) {
  std::fprintf(stderr, "%s\n", error.describe().c_str());
  return 1;
}

int main(int argc, char** argv) {
  const bool alone = argc < 3;  // Then this example ends at once.
  const std::string name = "hawser-upgrade-" + std::to_string(getpid());
  const std::string path = alone ? (std::filesystem::temp_directory_path() / name).string() : argv[2];

  // Blocked before the first thread starts, so that only sigwait() receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // [manager]
  hawser::ServiceManager manager;  // Before the first thread starts. It does nothing without a service manager.
  // [/manager]

  // [take]
  auto before = hawser::Predecessor::ask(path);
  if (!before) return failed(before.error());
  hawser::ServerOptions options;
  // The sockets of the process that serves now; else those of systemd; else a new one.
  options.listen = before->listen(manager.listen(alone ? "127.0.0.1:0" : argv[1]));
  hawser::Server server(options);
  server.register_handler<greet>();
  if (auto started = server.start(); !started) return failed(started.error());
  // [/take]
  // [begin]
  // The process before this one leaves. This one offers its sockets to the next one.
  auto handover =
      hawser::Handover::begin(server, std::move(*before), {.grace = 10s, .taken = [] { kill(getpid(), SIGTERM); }});
  if (!handover) return failed(handover.error());
  manager.ready("serving at " + server.address());
  // [/begin]
  std::printf("serving at %s\n", server.address().c_str());
  if (alone) kill(getpid(), SIGTERM);
  // [end]
  int signal = 0;
  sigwait(&signals, &signal);
  manager.stopping();
  handover->reset();  // Before the server stops: no further process takes its sockets.
  server.stop(10s);
  // [/end]
  return 0;
}
