#include <thread>

#include "hawser/transport/factory.h"
#include "hawser/transport/transport.h"
#include "security/tls/path_keys.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// Sides that protect paths beside the stream in another way, or not at all.
namespace hawser {
namespace {

using namespace testing_tools;

class TlsPathLevels : public TlsFixture {};

TEST_F(TlsPathLevels, AClientThatDoesNotProveGetsTheEncryptedStream) {
  start();
  const auto context = load({.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024});
  std::shared_ptr<void> kept;
  Loop loop;
  const auto worker = shm().factory().make(kept)->attach(loop);
  ASSERT_TRUE(worker) << error_of(worker);
  for (const std::uint8_t demanded : {std::uint8_t{0}, std::uint8_t{9}}) {
    RawTls old(RawSocket::connected_to(server->address()),
               std::make_unique<security::tls::TlsSession>(context, "localhost", "hawser", nullptr));
    ASSERT_TRUE(old.handshake());
    wire::Hello hello = usual_hello();
    hello.offers = {{"shm", (*worker)->offer()}};
    hello.protection = demanded;
    old.send(wire::encode_hello(hello));
    const std::optional<Octets> prefix = old.receive(wire::hello_prefix_bytes);
    ASSERT_TRUE(prefix);
    const std::optional<Octets> body = old.receive(*wire::hello_body_bytes(*prefix));
    ASSERT_TRUE(body);
    const Result<wire::Hello> answer = wire::decode_hello(*prefix + *body);
    ASSERT_TRUE(answer) << error_of(answer);
    EXPECT_FALSE(answer->selection);
    ASSERT_EQ(answer->declined.size(), 1U);
    EXPECT_HAS(std::string(as_text(answer->declined[0].bytes)), "update");
  }
}

// Connects a client that demands `level` to a server within TLS that selects a path, with these fields of its HELLO.
// Returns why the client has declined it.
std::string declined_path(security::tls::Authority& authority, TlsClientOptions tls, TlsProtection level,
                          std::uint8_t protection, std::uint32_t message_bytes_max) {
  RawListener listener;
  tls.protection = level;
  ClientOptions with{.connect_timeout = patience, .call_timeout = patience};
  with.security = TlsClient(tls);
  std::string outcome;
  std::jthread client([&] {
    sync_wait([](std::string to, ClientOptions given, std::string& out) -> Task<void> {
      Client connecting(std::move(given));
      auto connected = co_await connecting.connect(to);
      out = connected ? "connected over " + std::string(connecting.transport()) + ": " +
                            connecting.fallback_reasons().at(0).reason
                      : error_of(connected);
    }(listener.address(), with, outcome));
  });
  const auto context = load({.server = true, .certificates = {authority.issue("old")}});
  RawTls old(listener.accept(), std::make_unique<security::tls::TlsSession>(context, std::string("\x06hawser")));
  EXPECT_TRUE(old.handshake());
  const auto receive_hello = [&old]() -> Result<wire::Hello> {
    const std::optional<Octets> prefix = old.receive(wire::hello_prefix_bytes);
    if (!prefix) return fail(ErrorCode::unavailable, "no hello came");
    const std::optional<Octets> body = old.receive(*wire::hello_body_bytes(*prefix));
    if (!body) return fail(ErrorCode::unavailable, "the hello was cut");
    return wire::decode_hello(*prefix + *body);
  };
  const Result<wire::Hello> theirs = receive_hello();
  if (!theirs) return error_of(theirs);
  EXPECT_EQ(theirs->protection, static_cast<std::uint8_t>(security::tls::path_protection(level)));
  EXPECT_EQ(theirs->offers.size(), 1U);
  wire::Hello hello = usual_hello();
  hello.message_bytes_max = message_bytes_max;
  hello.protection = protection;
  hello.calls_max = 64;
  hello.selection = {"shm", octets("parameters")};
  old.send(wire::encode_hello(hello));
  const Result<wire::Hello> answer = receive_hello();
  if (!answer) return error_of(answer);
  EXPECT_FALSE(answer->answer);
  EXPECT_TRUE(answer->unanswered);
  hello.selection.reset();
  old.send(wire::encode_hello(hello));
  client.join();
  return outcome;
}

// Such as a server of an earlier version, which does not state that it proves the path.
TEST_F(TlsPathLevels, AServerThatProtectsLessKeepsTheEncryptedStream) {
  constexpr std::uint32_t usual = 64U << 20;
  const auto declined = [&](TlsProtection level, std::uint8_t protection, std::uint32_t message_bytes_max) {
    return declined_path(authority, client_options(), level, protection, message_bytes_max);
  };
  const std::string over = "connected over tcp+tls: ";
  EXPECT_EQ(declined(TlsProtection::authenticated, 0, usual),
            over + "the server does not prove that it agreed on the path: update it");
  EXPECT_EQ(declined(TlsProtection::authenticated, 4, usual),
            over + "the server demands a protection of paths that is not known here: update it");
  EXPECT_EQ(declined(TlsProtection::sealed_messages, 2, usual),
            over +
                "the server offers signed messages on the path, and TlsClientOptions::protection demands sealed "
                "ones: update the server");
  // No message has room for its protection.
  EXPECT_EQ(declined(TlsProtection::authenticated, 3, 111),
            over + "message_bytes_max of one side is less than 112 bytes, which a protected path needs: raise it");
}

}  // namespace
}  // namespace hawser
