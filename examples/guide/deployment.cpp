// Chapter 10 of the guide: a server with limits, a log, and a graceful stop by a signal.
#include <hawser/hawser.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

using namespace std::chrono_literals;

std::string echo(std::string_view text) { return std::string(text); }

hawser::Task<std::string> greet(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return "";
  const hawser::Result<std::string> reply = co_await client.call<echo>("ahoy");
  co_return reply.value_or("");
}

// [log]
// A log for servers, clients and sync_wait(). Several threads may call it at once.
hawser::LoopOptions logged() {
  hawser::LoopOptions options;
  options.log = [](hawser::LogLevel level, std::string_view component, std::string_view text) {
    if (level < hawser::LogLevel::info) return;
    std::fprintf(stderr, "%.*s %.*s: %.*s\n", static_cast<int>(to_string(level).size()), to_string(level).data(),
                 static_cast<int>(component.size()), component.data(), static_cast<int>(text.size()), text.data());
  };
  options.blocked_max = 50ms;  // A warning names the method that blocks a loop for longer.
  return options;
}
// [/log]

// [options]
hawser::ServerOptions production_options(std::string address) {
  hawser::ServerOptions options;
  options.listen = std::move(address);
  options.threads = 4;                     // One loop per thread. Leave cores for the handlers' own threads.
  options.connections_max = 10'000;        // Beyond this, a client is refused with `overloaded`.
  options.calls_max = 50'000;              // Calls in flight on the whole server.
  options.message_bytes_max = 16u << 20;   // One request or reply with its attachment.
  options.receive_bytes_max = 512u << 20;  // Received requests that a loop keeps.
  options.loop = logged();
  return options;
}
// [/options]

int main(int argc, char** argv) {
  // [signals]
  // Blocked before the first thread starts, so that only sigwait() receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  hawser::Server server(production_options(argc > 1 ? argv[1] : "127.0.0.1:0"));
  server.register_handler<echo>();
  if (auto started = server.start(); !started) {
    std::puts(started.error().describe().c_str());
    return 1;
  }
  std::printf("listening at %s\n", server.address().c_str());
  // [/signals]
  // [sync-wait]
  // The temporary loop of sync_wait() has options and a log too.
  const std::string greeting = hawser::sync_wait(greet(server.address()), logged());
  // [/sync-wait]
  if (greeting != "ahoy") return 1;
  if (argc == 1) kill(getpid(), SIGTERM);  // Without an address, this example ends at once.
  // [stop]
  int signal = 0;
  sigwait(&signals, &signal);
  // New calls are refused from now on. Calls in flight have ten seconds; then they are cancelled.
  server.stop(10s);
  const hawser::ServerCounters counters = server.counters();
  std::printf("%llu calls, %llu refused\n", static_cast<unsigned long long>(counters.calls),
              static_cast<unsigned long long>(counters.calls_refused));
  // [/stop]
}
