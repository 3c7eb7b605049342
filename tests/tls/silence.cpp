#include <memory>
#include <string>

#include "exec/sim_poller.h"
#include "hawser/custom_protocol.h"
#include "tests/lifecycle/virtual_time.h"
#include "tests/tls/fixture.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"
#include "transport/stream_security.h"

// How long connections may be silent before the first byte within TLS, in virtual time.
namespace hawser {
namespace {

using namespace testing_tools;

class TlsSilence : public TlsFixture {
 protected:
  TlsSilence() {
    ServerOptions over_network;
    over_network.listen = "server:0";
    over_network.handshake_timeout = 5s;
    over_network.handshakes_max = 3;
    over_network.security =
        TlsServer({.certificates = {authority.issue("server")}, .reload_interval = forever, .handshake_threads = 0});
    served = std::make_unique<Server>(loop, transport::over(network, over_network));
    served->enable(CustomProtocol{.name = "lines",
                                  .match = CustomProtocol::begins_with("@"),
                                  .serve = [](ProtocolConnection& connection) -> Task<void> {
                                    const Result<std::string> line = co_await connection.receive_until("\n", 100);
                                    if (line) static_cast<void>(co_await connection.send(*line));
                                  },
                                  .idle_timeout = 75s});
  }
  // Returns what a client receives that completes the handshake of TLS, waits, and then sends a line.
  Task<std::string> answer(Duration wait) {
    TlsClientOptions with = client_options();
    with.server_name = "localhost";
    with.handshake_threads = 0;
    with.reload_interval = forever;
    const std::shared_ptr<transport::ClientSecurity> security = TlsClient(with);
    auto plain = co_await network->connect(loop, served->address(), patience);
    if (!plain) co_return error_of(plain);
    auto secured =
        co_await security->protect(loop, std::move(*plain), served->address(), "", loop.after(std::chrono::minutes(1)));
    if (!secured) co_return error_of(secured);
    lifecycle::RawStream client(loop, std::move(*secured));
    co_await loop.sleep(wait);
    if (client.ended()) co_return "ended";
    client.send(as_bytes(std::string_view("@line\n")));
    co_await loop.sleep(1s);
    co_return std::string(as_text(client.got()));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), lifecycle::quiet()};
  const std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(11);
  std::unique_ptr<Server> served;
};

TEST_F(TlsSilence, LastsAsLongAsTheProtocolsIdleTimeout) {
  const auto body = [&]() -> Task<void> {
    REQUIRE_OK(served->start());
    EXPECT_EQ(co_await answer(0s), "@line");
    EXPECT_EQ(co_await answer(70s), "@line");
    EXPECT_EQ(co_await answer(76s), "ended");
  };
  loop.run(body());
}

// The handshake of TLS itself is not silence.
TEST_F(TlsSilence, DoesNotExtendTheHandshake) {
  const auto body = [&]() -> Task<void> {
    REQUIRE_OK(served->start());
    auto half = co_await lifecycle::connect_raw(loop, *network, served->address());
    REQUIRE(half);
    co_await loop.sleep(60s);
    EXPECT_FALSE(half->ended());
    half->send(as_bytes(std::string_view("\x16\x03\x01", 3)));
    co_await loop.sleep(6s);
    EXPECT_TRUE(half->ended());
  };
  loop.run(body());
}

// Connections that have been silent give way before an older one that has begun the handshake of TLS.
TEST_F(TlsSilence, EndsBeforeAHandshakeWhenPlacesAreNeeded) {
  const auto body = [&]() -> Task<void> {
    REQUIRE_OK(served->start());
    auto half = co_await lifecycle::connect_raw(loop, *network, served->address());
    REQUIRE(half);
    auto silent = co_await lifecycle::connect_silent(loop, *network, served->address(), 2);
    REQUIRE(silent.size() == 2);
    half->send(as_bytes(std::string_view("\x16\x03\x01\x02\x00\x01", 6)));
    EXPECT_EQ(co_await answer(0s), "@line");
    EXPECT_FALSE(half->ended());
    EXPECT_TRUE(silent[0]->ended());
    EXPECT_FALSE(silent[1]->ended());
  };
  loop.run(body());
}

}  // namespace
}  // namespace hawser
