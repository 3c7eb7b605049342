#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/transport/poller.h"
#include "tests/at_rest.h"
#include "tests/testing.h"
#include "transport/network.h"
#include "transport/network_access.h"

// One suite of the whole API over every available backend. Each test runs on each backend.
namespace hawser::conformance {

using namespace testing_tools;

// Interface of a backend for the suite.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Loop> make_loop() = 0;
  virtual std::shared_ptr<transport::Network> network() = 0;
  // Returns an address at which any number of servers can listen.
  virtual std::string listen_address() = 0;
  // Returns an address at which no server listens.
  virtual std::string dead_address() = 0;
  // Returns options for a server's own loops.
  virtual LoopOptions loop_options() = 0;
  // Returns the transports of servers and clients.
  virtual TransportOptions transports() { return {}; }
  // Returns why this backend is not available; empty if it is.
  virtual std::string absent() { return {}; }
  // Returns whether threads, offloading and time are real.
  virtual bool real_time() const { return true; }
};

struct BackendFactory {
  const char* name;
  std::unique_ptr<Backend> (*make)();
};
inline void PrintTo(const BackendFactory& factory, std::ostream* out) { *out << factory.name; }
// Returns all backends, each as a factory with a name for the test.
std::vector<BackendFactory> backends();

// Server and clients share one loop and one thread, so that the test determines the order of events.
class Conformance : public ::testing::TestWithParam<BackendFactory> {
 protected:
  void SetUp() override {
    if (const std::string reason = backend->absent(); !reason.empty()) GTEST_SKIP() << reason;
    loop_ = backend->make_loop();
  }

  Loop& loop() { return *loop_; }

  // Runs the coroutine that `body` returns until it ends.
  template <class Body>
  void run(Body body) {
    loop().run(body());
  }

  ServerOptions server_options() {
    ServerOptions options;
    options.listen = backend->listen_address();
    options.loop = backend->loop_options();
    options.transports = backend->transports();
    options.handshake_timeout = patience;
    return options;
  }
  // Returns options for a server that sends the texts of exceptions.
  ServerOptions frank_options() {
    ServerOptions options = server_options();
    options.exception_texts = true;
    return options;
  }
  std::unique_ptr<Server> make_server() { return make_server(server_options()); }
  std::unique_ptr<Server> make_server(ServerOptions options) {
    return std::make_unique<Server>(loop(), over(backend->network(), std::move(options)));
  }
  // Makes a server with loops and threads of its own.
  std::unique_ptr<Server> make_threaded_server(ServerOptions options) {
    return std::make_unique<Server>(over(backend->network(), std::move(options)));
  }
  // The default of connect_timeout is too short for a connection over the emulated devices of a busy machine.
  static ClientOptions patient(ClientOptions options = {}) {
    if (options.connect_timeout == ClientOptions{}.connect_timeout) options.connect_timeout = patience;
    return options;
  }
  std::unique_ptr<Client> make_client(ClientOptions options = {}) {
    options = patient(std::move(options));
    options.transports = backend->transports();
    return std::make_unique<Client>(loop(), over(backend->network(), std::move(options)));
  }
  std::shared_ptr<ClientPool> make_pool(const std::string& address, PoolOptions options = {}) {
    options.client = patient(std::move(options.client));
    options.client.transports = backend->transports();
    return ClientPool::create(loop(), address, over(backend->network(), std::move(options)));
  }

  // Runs body(server, client) with a server of these handlers and a connected client.
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
  // Does the same with a server whose handlers have been registered.
  template <class Body>
  void run_connected(Server& server, ClientOptions client_with, Body body) {
    run([&]() -> Task<void> {
      REQUIRE_OK(server.start());
      const std::unique_ptr<Client> client = make_client(std::move(client_with));
      auto connected = co_await client->connect(server.address());
      REQUIRE_OK(connected);
      {
        co_await body(server, *client);
      }
      // The test must leave nothing behind.
      client->close();
      EXPECT_EQ(client->calls_in_flight(), 0U);
      co_await server.shut_down(10ms);
      const ServerCounters counters = server.counters();
      EXPECT_EQ(counters.connections_open, 0U);
      EXPECT_EQ(counters.calls_in_flight, 0U);
      co_await reach_rest(loop(), server);
    });
  }

  const std::unique_ptr<Backend> backend = GetParam().make();

 private:
  std::unique_ptr<Loop> loop_;
};

}  // namespace hawser::conformance
