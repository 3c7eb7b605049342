#include "bench/load/connecting_role.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "bench/load/client_role.h"
#include "bench/load/handlers.h"
#include "bench/load/tls.h"
#include "bench/load/transport_choice.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser::bench {
namespace {

constexpr std::chrono::milliseconds step(1);
volatile sig_atomic_t ending = 0;

class ConnectingClient {
 public:
  ConnectingClient(Loop& loop, const RunOptions& options, const Cell& cell, const std::string& address)
      : loop_(loop), options_(options), address_(address) {
    client_options_.connect_timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(connect_s_max * 1e9));
    client_options_.transports = client_transports(cell.transport);
    client_options_.security = client_security(options, cell.transport);
  }

  Task<void> run() {
    const Time began = loop_.now();
    double begun = 0;
    while (ending == 0) {
      co_await loop_.sleep(step);
      const double due = std::chrono::duration<double>(loop_.now() - began).count() * options_.connecting_per_s;
      for (; begun < due && clients_.size() < connecting_clients_max; ++begun) clients_.spawn(once());
      begun = std::max(begun, due - 1);  // Clients that could not begin in time are left out.
    }
    const double seconds = std::chrono::duration<double>(loop_.now() - began).count();
    fmt::print(stderr, "hawser-bench: {:.0f} clients a second connected beside the cells for {:.1f} s; {} failed{}{}\n",
               static_cast<double>(done_) / seconds, seconds, failed_, first_error_.empty() ? "" : ": ", first_error_);
    clients_.clear();
  }

 private:
  Task<void> once() {
    Client client(loop_, client_options_);
    Result<void> connected = co_await client.connect(address_);
    if (!connected) co_return failed(connected.error());
    const Result<Usage> answered = co_await client.call<usage>();
    if (!answered) co_return failed(answered.error());
    ++done_;
  }
  void failed(const Error& error) {
    if (failed_++ == 0) first_error_ = error.describe();
  }

  Loop& loop_;
  const RunOptions& options_;
  const std::string address_;
  ClientOptions client_options_;
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;
  std::string first_error_;
  Scope clients_;
};

}  // namespace

int play_connecting(const RunOptions& options, const Cell& cell, const std::string& address) {
  struct sigaction end{};
  end.sa_handler = [](int) { ending = 1; };
  sigaction(SIGTERM, &end, nullptr);
  Loop loop({.wait = Wait::event, .poller = options.poller});
  ConnectingClient connecting(loop, options, cell, address);
  loop.run(connecting.run());
  return 0;
}

}  // namespace hawser::bench
