#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/rdma/child.h"
#include "tests/rdma/device.h"

// A network that goes down during calls.
namespace hawser::rdma_tests {

inline std::string_view echo_there(std::string_view text) { return text; }

// Serves until it is killed, and reports its address.
void serve(const TransportOptions& transports, const Child::Say& say) {
  ServerOptions options;
  options.handshake_timeout = patience;
  options.loop.log = no_log();
  options.transports = transports;
  Server server(std::move(options));
  server.register_handler<echo_there>();
  const Result<void> running = server.start();
  say(running ? server.address() : "failed: " + running.error().text);
  for (;;) ::pause();
}

class Port : public Device {};

// The port goes down, so no packet passes: the client fails over to the byte stream, and every call has an outcome.
TEST_F(Port, DownUnderLoad) {
  if (std::getenv("HAWSER_RDMA_GUEST") == nullptr) GTEST_SKIP() << "takes the network down: in the guest only";
  TransportOptions any{.enabled = {rdma()}};
  Child child([any](const Child::Say& say, const Child::Hear&) { serve(any, say); });
  const std::string address = child.hear();
  ASSERT_NE(address, "");
  sync_wait([](const std::string& to, const TransportOptions& with) -> Task<void> {
    ClientOptions options;
    options.connect_timeout = patience;
    options.transports = with;
    Client client(std::move(options));
    auto connected = co_await client.connect(to);
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "rdma");
    const std::string text = text_of(100'000);
    for (int i = 0; i < 100; ++i) {
      if (i == 20) {
        EXPECT_EQ(std::system("ip link set dummy0 down"), 0);
      }
      const CallOptions reply_options{.timeout = patience, .idempotent = true};
      auto reply = co_await client.call<echo_there>(reply_options, text);
      REQUIRE_OK(reply);
      EXPECT_TRUE(*reply == text);
    }
    EXPECT_EQ(client.transport(), "tcp");
    EXPECT_EQ(client.failovers(), 1u);
  }(address, any));
  EXPECT_EQ(std::system("ip link set dummy0 up"), 0);
}

}  // namespace hawser::rdma_tests
