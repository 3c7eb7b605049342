#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/transport/poller.h"
#include "tests/testing.h"
#include "transport/network.h"

// One suite of the whole API over every backend that can carry it: what a test does, it does on each.
namespace hawser::conformance {

using namespace testing_tools;

// What the suite needs of a backend.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Loop> make_loop() = 0;
  virtual std::shared_ptr<transport::Network> network() = 0;
  // Where a server can listen, any number of them.
  virtual std::string listen_address() = 0;
  // Where nobody listens.
  virtual std::string dead_address() = 0;
  // Options of a server's own loops.
  virtual LoopOptions loop_options() = 0;
  // Of servers and clients.
  virtual TransportOptions transports() { return {}; }
  // Why this backend can't be had here; empty if it can.
  virtual std::string absent() { return {}; }
  // Threads, offloading and the passing of time are real.
  virtual bool real_time() const { return true; }
};

struct BackendFactory {
  const char* name;
  std::unique_ptr<Backend> (*make)();
};
inline void PrintTo(const BackendFactory& factory, std::ostream* out) { *out << factory.name; }
// All that there are, each behind a name for the test's.
std::vector<BackendFactory> backends();

// Server and clients share one loop and one thread, so that a test says what happens in which order.
class Conformance : public ::testing::TestWithParam<BackendFactory> {
 protected:
  void SetUp() override {
    if (const std::string reason = backend->absent(); !reason.empty()) GTEST_SKIP() << reason;
    loop_ = backend->make_loop();
  }

  Loop& loop() { return *loop_; }

  // Runs the coroutine that `body` gives to its end.
  template <class Body>
  void run(Body body) {
    loop().run(body());
  }

  ServerOptions server_options() {
    ServerOptions options;
    options.listen = backend->listen_address();
    options.loop = backend->loop_options();
    options.transports = backend->transports();
    return options;
  }
  std::unique_ptr<Server> make_server() { return make_server(server_options()); }
  std::unique_ptr<Server> make_server(ServerOptions options) {
    return std::make_unique<Server>(loop(), backend->network(), std::move(options));
  }
  // With loops and threads of its own.
  std::unique_ptr<Server> make_threaded_server(ServerOptions options) {
    return std::make_unique<Server>(backend->network(), std::move(options));
  }
  std::unique_ptr<Client> make_client(ClientOptions options = {}) {
    options.transports = backend->transports();
    return std::make_unique<Client>(loop(), backend->network(), std::move(options));
  }
  std::shared_ptr<ClientPool> make_pool(const std::string& address, PoolOptions options = {}) {
    options.client.transports = backend->transports();
    return ClientPool::create(loop(), backend->network(), address, std::move(options));
  }

  // Runs body(server, client) with a server of these handlers and a client connected to it.
  template <auto... functions, class Body>
  void serve(Body body) {
    serve<functions...>(server_options(), {}, std::move(body));
  }
  template <auto... functions, class Body>
  void serve(ServerOptions server_with, ClientOptions client_with, Body body) {
    const std::unique_ptr<Server> server = make_server(std::move(server_with));
    server->register_handler<functions...>();
    run_connected(*server, std::move(client_with), std::move(body));
  }
  // The same with a server whose handlers have been registered.
  template <class Body>
  void run_connected(Server& server, ClientOptions client_with, Body body) {
    run([&]() -> Task<void> {
      REQUIRE_OK(server.start());
      const std::unique_ptr<Client> client = make_client(std::move(client_with));
      AWAIT(connected, client->connect(server.address()));
      REQUIRE_OK(connected);
      {
        auto task = body(server, *client);
        co_await std::move(task);
      }
      // Whatever the test did, nothing of it is left.
      client->close();
      EXPECT_EQ(client->calls_in_flight(), 0U);
      auto stopping = server.shut_down(10ms);
      co_await std::move(stopping);
      const ServerCounters counters = server.counters();
      EXPECT_EQ(counters.connections_open, 0U);
      EXPECT_EQ(counters.calls_in_flight, 0U);
    });
  }

  const std::unique_ptr<Backend> backend = GetParam().make();

 private:
  std::unique_ptr<Loop> loop_;
};

}  // namespace hawser::conformance
