// Calls when RDMA breaks during them while the peer lives.
#include <string>

#include "tests/rdma/device.h"
#include "tests/rdma/own_device.h"

namespace hawser::rdma_tests {

inline std::string worked_at(std::string_view text) { return std::string(text); }

// Every call is counted: all idempotent calls succeed. No other call is executed twice or ends with a wrong reason.
TEST_F(Device, AConnectionWhoseCableIsPulledGoesOnOverTcpAndComesBack) {
  const OwnDevice device(1);
  NEEDS_OWN_DEVICE(device);
  const TransportOptions transports{.enabled = {rdma({.device = device.name()})},
                                    .retry_min = std::chrono::milliseconds(500)};
  Loop loop({.log = no_log()});
  ServerOptions served;
  served.handshake_timeout = patience;
  served.transports = transports;
  Server server(loop, std::move(served));
  server.register_handler<worked_at>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address, TransportOptions with, const OwnDevice& cable) -> Task<void> {
    ClientOptions options;
    options.connect_timeout = patience;
    options.transports = std::move(with);
    Client client(on, std::move(options));
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "rdma")
        << (client.fallback_reasons().empty() ? "" : client.fallback_reasons()[0].reason);
    std::uint64_t begun = 0;
    std::uint64_t answered = 0;
    std::uint64_t unknown = 0;
    bool stop = false;
    const auto load = [&](bool idempotent) -> Task<void> {
      while (!stop) {
        ++begun;
        const std::string text = text_of(idempotent ? 200 : 50'000);
        const CallOptions reply_options{.timeout = patience, .idempotent = idempotent};
        auto reply = co_await client.call<worked_at>(reply_options, text);
        if (reply) {
          EXPECT_TRUE(*reply == text);
          ++answered;
        } else {
          EXPECT_FALSE(idempotent) << reply.error().describe();
          EXPECT_EQ(reply.error().code, ErrorCode::outcome_unknown) << reply.error().describe();
          ++unknown;
        }
      }
    };
    Scope scope;
    for (int i = 0; i < 8; ++i) scope.spawn(load(i % 2 == 0));
    auto loaded = co_await eventually(on, [&] { return answered >= 8; });
    EXPECT_TRUE(loaded);
    EXPECT_TRUE(cable.unplug());
    auto moved = co_await eventually(on, [&] { return client.transport() == "tcp"; });
    EXPECT_TRUE(moved);
    const std::uint64_t answered_by_then = answered;
    auto went_on = co_await eventually(on, [&] { return answered > answered_by_then; });
    EXPECT_TRUE(went_on);
    EXPECT_TRUE(cable.plug());
    auto back = co_await eventually(on, [&] { return client.transport() == "rdma"; });
    EXPECT_TRUE(back) << (client.fallback_reasons().empty() ? "" : client.fallback_reasons()[0].reason);
    stop = true;
    co_await scope.join();
    EXPECT_EQ(answered + unknown, begun);
    EXPECT_LE(unknown, 4U) << "at most what was under way";
    EXPECT_GE(client.failovers(), 2U);
  }(loop, server.address(), transports, device));
}

}  // namespace hawser::rdma_tests
