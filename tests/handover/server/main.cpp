// A server that takes the sockets of the process before it, and offers them to the next one:
// hawser_test_handover_server ADDRESS PATH NUMBER. It ends when the next one serves.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <utility>

#include "hawser/handover.h"
#include "tests/handover/handlers.h"

namespace hawser::handover_tests {

namespace {

std::uint64_t own_number = 0;
std::atomic<std::uint64_t> executed{0};

int end_with(const Error& error) {
  std::printf("error: %s\n", error.describe().c_str());
  return 1;
}

int run_server(const char* address, const char* path) {
  Result<Predecessor> before = Predecessor::ask(path);
  if (!before) return end_with(before.error());
  ServerOptions options;
  options.listen = before->listen(address);
  options.threads = 2;
  options.loop.wait = Wait::event;
  // Nothing ends because this machine is slow.
  options.handshake_timeout = std::chrono::minutes(10);
  options.ping_interval = std::chrono::minutes(10);
  options.transports.enable(shm());
  options.transports.enable(ucx());
  Server server(options);
  server.register_handler<number_of_process>();
  if (const Result<void> started = server.start(); !started) return end_with(started.error());
  std::printf("serving at %s\n", server.address().c_str());
  std::fflush(stdout);
  std::promise<void> taken;
  const auto handover = Handover::begin(server, std::move(*before),
                                        {.ready_max = std::chrono::hours(1),
                                         .leave_max = std::chrono::minutes(2),
                                         .grace = std::chrono::minutes(2),
                                         .taken = [&taken] { taken.set_value(); }});
  if (!handover) return end_with(handover.error());
  taken.get_future().wait();
  std::printf("executed %llu refused %llu\n", static_cast<unsigned long long>(executed.load()),
              static_cast<unsigned long long>(server.counters().calls_refused));
  return 0;
}

}  // namespace

Task<std::uint64_t> number_of_process(Context&, std::uint64_t call) {
  executed.fetch_add(1);
  if (call % 8 == 0) co_await Loop::current()->sleep(std::chrono::milliseconds(2));
  co_return own_number;
}

}  // namespace hawser::handover_tests

int main(int count, char** words) {
  if (count != 4) return 2;
  hawser::handover_tests::own_number = std::strtoull(words[3], nullptr, 10);
  return hawser::handover_tests::run_server(words[1], words[2]);
}
