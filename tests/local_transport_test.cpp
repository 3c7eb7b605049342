// A transport outside the library: the conformance suite of transports, and calls over it.
#include "tests/local_transport/local_transport.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/client_pool.h"
#include "hawser/transport/factory.h"
#include "tests/testing.h"
#include "transport/common/framed_connection.h"
#include "transport/conformance/transport_suite_testing.h"

namespace hawser::transport {
namespace {

std::shared_ptr<Transport> make_local() {
  std::shared_ptr<void> kept;
  return local_transport::local().factory().make(kept);
}

std::vector<TransportCase> local_cases() {
  const std::vector<TransportCase> all = transport_cases(
      "local", &make_local, {FramedConnection::receive_buffer_bytes_min, FramedConnection::receive_block_bytes});
  return {all[1], all[2]};  // One loop with io_uring, two loops with epoll.
}

INSTANTIATE_TEST_SUITE_P(Local, TransportSuite, testing::ValuesIn(local_cases()), name_of_transport_case);

}  // namespace
}  // namespace hawser::transport

namespace hawser::local_transport_tests {

using namespace testing_tools;
using local_transport::local;

inline std::string_view echo_locally(std::string_view text) { return text; }

class LocalTransport : public testing::Test {
 protected:
  // Runs body(client) with a client that is connected to a server in the same process.
  template <class Body>
  void run(TransportOptions server_has, TransportOptions client_has, Body body) {
    ServerOptions options;
    options.loop.log = no_log();
    options.transports = std::move(server_has);
    Server server(loop, std::move(options));
    server.register_handler<echo_locally>();
    const Result<void> started = server.start();
    ASSERT_TRUE(started) << error_of(started);
    loop.run([](Server& serving, Loop& on, TransportOptions with, Body& doing) -> Task<void> {
      Client client(on, {.transports = std::move(with)});
      auto connected = co_await client.connect(serving.address());
      REQUIRE_OK(connected);
      {
        co_await doing(client);
      }
      client.close();
      co_await serving.shut_down(1s);
    }(server, loop, std::move(client_has), body));
  }

  Loop loop{{.log = no_log()}};
};

TEST_F(LocalTransport, CarriesCalls) {
  const TransportOptions transports{.enabled = {local()}, .required = "local"};
  run(transports, transports, [](Client& client) -> Task<void> {
    EXPECT_EQ(client.transport(), "local");
    EXPECT_TRUE(client.fallback_reasons().empty());
    for (const std::size_t bytes : {0U, 100U, 100'000U, 8U << 20}) {
      const std::string text = text_of(bytes);
      auto reply = co_await client.call<echo_locally>(text);
      REQUIRE_OK(reply);
      EXPECT_TRUE(*reply == text);
    }
    std::vector<PendingCall<echo_locally>> pending;
    for (int i = 0; i < 100; ++i) {
      auto sent = co_await client.send_request<echo_locally>("many at once");
      REQUIRE_OK(sent);
      pending.push_back(std::move(*sent));
    }
    for (PendingCall<echo_locally>& one : pending) {
      auto reply = co_await std::move(one);
      EXPECT_OK(reply);
    }
  });
}

TEST_F(LocalTransport, IsTriedWhereTheOrderSays) {
  const TransportOptions both{.enabled = {local(), shm()}};
  TransportOptions local_first = both;
  local_first.order = {"local", "shm"};
  run(local_first, both, [](Client& client) -> Task<void> {
    EXPECT_EQ(client.transport(), "local");
    REQUIRE(client.fallback_reasons().size() == 1);
    EXPECT_EQ(client.fallback_reasons()[0].transport, "shm");
    co_return;
  });
  TransportOptions local_only = both;
  local_only.order = {"local"};
  run(both, local_only, [](Client& client) -> Task<void> {
    EXPECT_EQ(client.transport(), "local");
    co_return;
  });
}

TEST_F(LocalTransport, IsLeftOutWhereThePeerHasNone) {
  run({.enabled = {}}, {.enabled = {local()}}, [](Client& client) -> Task<void> {
    EXPECT_EQ(client.transport(), "tcp");
    REQUIRE(client.fallback_reasons().size() == 1);
    EXPECT_EQ(client.fallback_reasons()[0].transport, "local");
    EXPECT_EQ(client.fallback_reasons()[0].reason, "the server has not enabled it");
    co_return;
  });
}

// Without an explicit order it follows the transports of the library, whose ranks are lower.
TEST_F(LocalTransport, IsEnabledByOneLine) {
  ServerOptions options;
  options.loop.log = no_log();
  options.transports.enabled.clear();
  Server server(loop, std::move(options));
  server.enable(local({.send_buffer_bytes = 64 * 1024}));
  server.register_handler<echo_locally>();
  ASSERT_TRUE(server.start());
  loop.run([](Server& serving, Loop& on) -> Task<void> {
    Client client(on);
    client.enable(local());
    auto connected = co_await client.connect(serving.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "local");
    auto reply = co_await client.call<echo_locally>("hi");
    EXPECT_OK(reply);
  }(server, loop));
}

}  // namespace hawser::local_transport_tests
