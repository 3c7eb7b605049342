#include "hawser/tls.h"

#include <string>

#include "hawser/blocking_client.h"
#include "tests/tls/fixture.h"

// Calls over TLS, and connections in plain text to a server that requires TLS.
namespace hawser {
namespace {

using namespace testing_tools;

class Tls : public TlsFixture {};

TEST_F(Tls, CarriesCallsOfEverySize) {
  start();
  const TlsClient tls(client_options());
  for (const std::size_t size : {0, 1, 100, 16'384, 100'000, 3'000'000}) {
    EXPECT_EQ(call(text_of(size), tls), "ok") << size;
  }
  EXPECT_EQ(used_transport, "shm");
  ClientOptions stream;
  stream.transports.required = "stream";
  for (const std::size_t size : {0, 1, 100, 16'384, 100'000, 3'000'000}) {
    EXPECT_EQ(call(text_of(size), tls, stream), "ok") << size;
  }
  EXPECT_EQ(used_transport, "tcp+tls");
  EXPECT_EQ(security->counters().handshakes, 12U);
  EXPECT_GE(security->counters().resumed, 10U);
  EXPECT_EQ(tls.counters().handshakes, 12U);
}

TEST_F(Tls, WorksWithOtherPollersAndOnTheLoopItself) {
  tls_options.handshake_threads = 0;
  tls_options.tls12 = false;
  options.loop.poller = PollerKind::io_uring;
  start();
  TlsClientOptions with = client_options();
  with.handshake_threads = 0;
  ClientOptions stream;
  stream.transports.required = "stream";
  EXPECT_EQ(call(text_of(3'000'000), TlsClient(with), stream), "ok");
}

TEST_F(Tls, CarriesManyCallsAtOnce) {
  start();
  PoolOptions pool;
  pool.client.security = TlsClient(client_options());
  pool.client.transports.required = "stream";
  BlockingClient client(server->address(), {.pool = pool});
  std::vector<StartedCall<echo>> calls;
  const std::string text = text_of(10'000);
  for (int i = 0; i < 300; ++i) calls.push_back(client.start<echo>(std::string_view(text)));
  for (auto& one : calls) {
    const auto reply = one.get();
    ASSERT_TRUE(reply) << error_of(reply);
    EXPECT_EQ(*reply, text);
  }
}

TEST_F(Tls, RequiredRefusesPlainTextAndNamesTheRemedy) {
  start();
  EXPECT_NE(call_with("hi", {}).find("this server requires TLS"), std::string::npos);
  RawSocket http = RawSocket::connected_to(server->address());
  http.send(as_bytes("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
  const std::string head = http.receive_text("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 400")) << head;
  EXPECT_EQ(head.find("Retry-After"), std::string::npos) << head;
  EXPECT_NE(http.receive_text("https").find("https"), std::string::npos);
  EXPECT_EQ(server->counters().connections_refused, 2U);
  EXPECT_EQ(call(client_options()), "ok");
}

TEST_F(Tls, PolicyMayAllowPlainTextOfThisHostOrOfEverybody) {
  for (const TlsPolicy policy : {TlsPolicy::required_from_hosts, TlsPolicy::allowed}) {
    tls_options.policy = policy;
    start();
    EXPECT_EQ(call_with("hi", {}), "ok");
    EXPECT_EQ(call(client_options()), "ok");
    server.reset();
  }
}

TEST_F(Tls, AClientWithTlsSaysThatTheServerHasNone) {
  server = std::make_unique<Server>(options);
  ASSERT_TRUE(server->start());
  EXPECT_NE(call(client_options()).find("the server does not answer in TLS"), std::string::npos);
}

TEST_F(Tls, EncryptedStreamRefusesOtherTransportsOnEitherSide) {
  start();
  TlsClientOptions with = client_options();
  with.protection = TlsProtection::encrypted_stream;
  EXPECT_EQ(call(with), "ok");
  EXPECT_EQ(used_transport, "tcp+tls");
  ClientOptions shm;
  shm.transports.required = "shm";
  EXPECT_NE(call("hi", TlsClient(with), shm).find("TlsClientOptions::protection is encrypted_stream"),
            std::string::npos);
  server.reset();
  tls_options.protection = TlsProtection::encrypted_stream;
  start();
  EXPECT_EQ(call(client_options()), "ok");
  EXPECT_EQ(used_transport, "tcp+tls");
  EXPECT_NE(call("hi", TlsClient(client_options()), shm).find("TlsServerOptions::protection is encrypted_stream"),
            std::string::npos);
}

}  // namespace
}  // namespace hawser
