#include "bench/load/threads_role.h"

#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "bench/load/client_role.h"
#include "bench/load/handlers.h"
#include "bench/load/metered_load.h"
#include "bench/load/tls.h"
#include "bench/load/transport_choice.h"
#include "hawser/blocking_client.h"
#include "hawser/client.h"
#include "hawser/loop.h"

namespace hawser::bench {
namespace {

ClientOptions threads_client_options(const RunOptions& options, const Cell& cell) {
  ClientOptions client;
  client.call_timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(options.call_timeout_s * 1e9));
  client.transports = client_transports(cell.transport);
  client.security = client_security(options, cell.transport);
  client.message_bytes_max = size_bytes_max + 4096;
  client.send_backlog_bytes_max = cell.concurrency * (cell.size_bytes + 256) + (1 << 20);
  return client;
}

// Hands the outcome of a call to the load. Returns whether to make another one.
bool settle_blocking(MeteredLoad& load, std::size_t number, const Result<std::string>& reply) {
  if (reply) return load.end(number, *reply);
  load.fail(reply.error().describe());
  return false;
}
bool settle_blocking(MeteredLoad& load, std::size_t number, const Result<Ack>& reply) {
  if (reply) return load.end(number, reply->bytes, reply->head);
  load.fail(reply.error().describe());
  return false;
}

template <auto handler>
void call_in_turn(BlockingClient& client, MeteredLoad& load, std::size_t number) {
  for (bool more = true; more;) {
    load.begin(number);
    more = settle_blocking(load, number, client.call<handler>(load.payload(number)));
  }
}

template <auto handler>
Task<void> call_in_turn(ClientOptions options, MeteredLoad& load, std::size_t number) {
  Client client(std::move(options));
  if (const Result<void> connected = co_await client.connect(load.address()); !connected) {
    load.fail(connected.error().describe());
    co_return;
  }
  for (bool more = true; more;) {
    load.begin(number);
    const auto reply = co_await client.call<handler>(load.payload(number));
    more = settle_blocking(load, number, reply);
  }
}

BlockingOptions blocking_options(const RunOptions& options, const Cell& cell) {
  BlockingOptions blocking;
  blocking.pool.client = threads_client_options(options, cell);
  blocking.pool.connections_max = 1;
  blocking.background.loop = options.loop(cell.wait);
  return blocking;
}

void measure_threads(const RunOptions& options, const Cell& cell, ThreadsShare share, MeteredLoad& load) {
  BlockingClient client(load.address(), blocking_options(options, cell));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < load.callers(); ++i) {
    threads.emplace_back([&, i] {
      if (share == ThreadsShare::client) {
        load.ack() ? call_in_turn<ack>(client, load, i) : call_in_turn<echo>(client, load, i);
      } else {
        const ClientOptions own = threads_client_options(options, cell);
        sync_wait(load.ack() ? call_in_turn<ack>(own, load, i) : call_in_turn<echo>(own, load, i),
                  options.loop(cell.wait));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

bool play_threads(const RunOptions& options, const std::string& address, pid_t server, const std::vector<Cell>& cells,
                  ThreadsShare share, const EventWriter& events) {
  BlockingClient control(address, blocking_options(options, cells.front()));
  Result<ServerFacts> facts = control.call<describe>();
  if (!facts) {
    events.write(Failed{"cannot connect to " + address + ": " + facts.error().describe()});
    return false;
  }
  events.write(Connected{std::move(*facts), std::string("epoll"), cells.front().transport});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!events.write(CellBegun{i})) return false;
    const auto load = std::make_unique<MeteredLoad>(options, address, cells[i], server);
    measure_threads(options, cells[i], share, *load);
    const CellResult result = load->meter().result(cells[i]);
    if (!load->meter().over()) {
      events.write(Failed{"the server was lost: " + result.first_error});
      return false;
    }
    events.write(result);
  }
  return true;
}

}  // namespace hawser::bench
