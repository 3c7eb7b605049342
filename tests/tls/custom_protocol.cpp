#include "hawser/custom_protocol.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>

#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// A protocol of a user within TLS.
namespace hawser::tls_custom_protocol {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

// "@who" is answered by the client's identity, "@N" by the N bytes that follow, after all of them have come.
Task<void> serve_who_and_bytes(ProtocolConnection& connection) {
  for (;;) {
    const Result<std::string> line = co_await connection.receive_until("\n", 20);
    if (!line) break;
    if (*line == "@who") {
      static_cast<void>(co_await connection.send(connection.identity().text() + "\n"));
      continue;
    }
    std::string body(std::stoul(line->substr(1)), '\0');
    if (!co_await connection.receive_into(std::as_writable_bytes(std::span(body)))) co_return;
    static_cast<void>(co_await connection.send(body));
  }
  static_cast<void>(co_await connection.send("bye"));
}

class TlsCustomProtocol : public TlsFixture {
 protected:
  void start_protocol(std::string alpn = {}) {
    tls_options.certificates = {authority.issue("server")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->register_handler<echo>();
    server->enable(CustomProtocol{.name = "lines",
                                  .alpn = std::move(alpn),
                                  .match = CustomProtocol::begins_with("@"),
                                  .serve = serve_who_and_bytes});
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  RawTls connected(std::string_view protocol = {}) {
    security::tls::ContextOptions client;
    client.certificates = {authority.issue("client", {.subject = "storage-7"})};
    client.ca_file = authority.ca_file();
    client.peer_certificate_bytes_max = 32 * 1024;
    RawTls made(RawSocket::connected_to(server->address()),
                std::make_unique<TlsSession>(load(client), "localhost", protocol, nullptr));
    EXPECT_TRUE(made.handshake());
    return made;
  }
  static std::string text(RawTls& from, std::size_t size) {
    const std::optional<Octets> bytes = from.receive(size);
    return bytes ? std::string(as_text(*bytes)) : "nothing";
  }
};

// As openssl s_client does, the client offers no protocol, and may end its direction before it has read.
TEST_F(TlsCustomProtocol, AClientWithoutAlpnIsIdentifiedAndMayEndItsDirection) {
  tls_options.client_ca_file = authority.ca_file();
  start_protocol();
  RawTls client = connected();
  EXPECT_EQ(client.session().protocol(), "");
  client.send("@who\n@3\nabc");
  client.session().shut_down();
  client.flush();
  ::shutdown(client.socket().fd(), SHUT_WR);
  const std::string all = "certificate CN=storage-7\nabcbye";
  EXPECT_EQ(text(client, all.size()), all);
  EXPECT_EQ(client.receive_end(), TlsSession::Read::closed);
  EXPECT_EQ(call([&] {
              TlsClientOptions other = client_options();
              other.certificate = authority.issue("other");
              return other;
            }()),
            "ok")
      << "the port serves Hawser's clients, too";
}

TEST_F(TlsCustomProtocol, LongMessagesPassInEachDirection) {
  options.send_backlog_bytes_max = 16 << 20;
  start_protocol("lines");
  RawTls client = connected("lines");
  EXPECT_EQ(client.session().protocol(), "lines");
  const std::string body = text_of(8'000'000);
  client.send("@who\n@8000000\n" + body);
  EXPECT_EQ(text(client, 7), "nobody\n");
  EXPECT_TRUE(text(client, body.size()) == body);
}

}  // namespace
}  // namespace hawser::tls_custom_protocol
