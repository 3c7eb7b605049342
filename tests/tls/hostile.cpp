#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "hawser/http_client.h"
#include "security/tls/stream.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// Peers that are slow, cut or change the bytes of TLS, or begin handshakes without an end.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

constexpr int tcp_cork = 3;  // TCP_CORK, whose header must not be included beside <linux/tcp.h>.

class TlsHostile : public TlsFixture {
 protected:
  TlsHostile() {
    server_options.server = true;
    server_options.certificates = {authority.issue("server")};
    server_options.peer_certificate_bytes_max = 32 * 1024;
    client_context_options.ca_file = authority.ca_file();
    client_context_options.peer_certificate_bytes_max = 32 * 1024;
    tls_options.certificates = server_options.certificates;
  }
  std::unique_ptr<TlsSession> server_session() {
    if (server_context == nullptr) server_context = load(server_options);
    return std::make_unique<TlsSession>(server_context, std::string("\x06hawser"));
  }
  std::unique_ptr<TlsSession> client_session() {
    if (client_context == nullptr) client_context = load(client_context_options);
    return std::make_unique<TlsSession>(client_context, "localhost", "hawser", nullptr);
  }
  RawTls connected() { return RawTls(RawSocket::connected_to(server->address()), client_session()); }

  security::tls::ContextOptions server_options;
  security::tls::ContextOptions client_context_options;
  std::shared_ptr<const security::tls::TlsContext> server_context;
  std::shared_ptr<const security::tls::TlsContext> client_context;
};

TEST_F(TlsHostile, BytesMayArriveOneByOne) {
  for (const bool tls12 : {false, true}) {
    SCOPED_TRACE(tls12);
    client_context = load(client_context_options);
    if (tls12) SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
    const auto client = client_session();
    const auto server_end = server_session();
    TlsSession* const ends[] = {client.get(), server_end.get()};
    TlsSession::Progress progress[] = {ends[0]->handshake(), TlsSession::Progress::more};
    while (progress[0] != TlsSession::Progress::done || progress[1] != TlsSession::Progress::done) {
      bool moved = false;
      for (int from : {0, 1}) {
        const Bytes output = ends[from]->output().bytes();
        const Octets bytes(output.begin(), output.end());
        ends[from]->output().clear();
        for (const std::byte one : bytes) {
          moved = true;
          ends[1 - from]->input().append(Bytes(&one, 1));
          if (progress[1 - from] == TlsSession::Progress::done) continue;
          progress[1 - from] = ends[1 - from]->handshake();
          ASSERT_NE(progress[1 - from], TlsSession::Progress::failed) << ends[1 - from]->error().text;
        }
      }
      ASSERT_TRUE(moved);
    }
    EXPECT_EQ(client->protocol(), "hawser");
    // Several pieces, short and long, and what the other end makes of them.
    const std::string long_text = text_of(50'000);
    const std::string texts[] = {"a", "", long_text, "b", long_text.substr(1), "c"};
    std::vector<ConstBuffer> pieces;
    std::string all;
    for (const std::string& one : texts) {
      pieces.push_back({as_bytes(one).data(), one.size()});
      all += one;
    }
    EXPECT_EQ(client->write(pieces, all.size()), all.size());
    move_bytes(*client, *server_end);
    std::string got;
    std::array<std::byte, 1000> space;
    std::size_t size = 0;
    while (server_end->read(space, size) == TlsSession::Read::data) got += as_text(Bytes(space).first(size));
    EXPECT_EQ(got, all);
  }
}

// Every byte of both directions is changed, one at a time. Nothing of what follows is accepted.
TEST_F(TlsHostile, AChangedByteIsAlwaysNoticed) {
  for (std::size_t at = 0, tried = 1; tried != 0; at += 3) {
    tried = 0;
    for (const int side : {0, 1}) {
      const auto client = client_session();
      const auto server_end = server_session();
      TlsSession* const ends[] = {client.get(), server_end.get()};
      std::size_t sent[2] = {0, 0};
      bool changed = false;
      TlsSession::Progress progress[] = {client->handshake(), TlsSession::Progress::more};
      std::string got;
      bool written = false;
      for (int turn = 0; turn < 6; ++turn) {
        for (const int from : {0, 1}) {
          const Bytes output = ends[from]->output().bytes();
          Octets bytes(output.begin(), output.end());
          ends[from]->output().clear();
          if (from == side && at >= sent[from] && at < sent[from] + bytes.size()) {
            bytes[at - sent[from]] ^= std::byte{0x20};
            changed = true;
          }
          sent[from] += bytes.size();
          TlsSession& to = *ends[1 - from];
          if (!bytes.empty()) to.input().append(bytes);
          if (progress[1 - from] == TlsSession::Progress::more) progress[1 - from] = to.handshake();
        }
        if (progress[0] == TlsSession::Progress::done && !std::exchange(written, true)) {
          const std::string_view secret = "the secret text";
          const ConstBuffer piece{as_bytes(secret).data(), secret.size()};
          client->write(std::span(&piece, 1), secret.size());
        }
        if (progress[1] == TlsSession::Progress::done) {
          std::array<std::byte, 100> space;
          std::size_t size = 0;
          while (server_end->read(space, size) == TlsSession::Read::data) got += as_text(Bytes(space).first(size));
        }
      }
      tried += changed ? 1 : 0;
      // After a change on its way to the client, the client may send before it notices; the server gets that alone.
      EXPECT_TRUE(got.empty() || got == "the secret text") << at;
      if (changed && side == 0) {
        EXPECT_EQ(got, "") << at;
      }
    }
  }
}

TEST_F(TlsHostile, BytesThatAreNoTlsAreRefused) {
  start();
  for (const std::string_view bytes : {std::string_view("\x16\x03", 2), std::string_view("\x16\x03\x01\xff\xff", 5),
                                       std::string_view("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10)}) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(bytes));
    if (bytes.size() > 5) {
      static_cast<void>(socket.receive(1));
    }
  }
  // One half of a first byte that is shared with no protocol.
  RawSocket other = RawSocket::connected_to(server->address());
  other.send(as_bytes(std::string_view("\x16\x02\x01\x00", 4)));
  EXPECT_NE(other.receive_text("\n").find("unknown protocol"), std::string::npos);
  EXPECT_EQ(call(client_options()), "ok");
}

TEST_F(TlsHostile, ThousandsOfHalfHandshakesLeaveRoomForOthers) {
  options.handshakes_max = 200;
  start();
  const auto hello = client_session();
  ASSERT_EQ(hello->handshake(), TlsSession::Progress::more);
  const Bytes bytes = hello->output().bytes();
  std::vector<RawSocket> half;
  for (int i = 0; i < 600; ++i) {
    half.push_back(RawSocket::connected_to(server->address()));
    half.back().send(i % 2 == 0 ? bytes : bytes.first(bytes.size() / 2));
    if (i % 100 == 99) {
      EXPECT_EQ(call(client_options()), "ok");
    }
  }
  EXPECT_TRUE(soon([&] { return server->counters().connections_refused >= 400; }));
  half.clear();
  EXPECT_EQ(call(client_options()), "ok");
}

TEST_F(TlsHostile, ASlowHandshakeEndsInTime) {
  options.handshake_timeout = 50ms;
  start();
  RawTls peer = connected();
  ASSERT_EQ(peer.session().handshake(), TlsSession::Progress::more);
  peer.flush();
  // The server's flight, and then its end.
  while (peer.socket().receive(1)) {
  }
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 1; }));
}

// With TLS 1.3 a client sends its first requests before the server has verified its certificate.
TEST_F(TlsHostile, ARefusedClientReceivesTheAlertBeforeTheEnd) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  RawTls peer = connected();
  ASSERT_TRUE(peer.handshake(false));
  peer.send(text_of(500'000));
  EXPECT_EQ(peer.receive_end(), TlsSession::Read::failed);
  EXPECT_HAS(peer.session().error().text, "set TlsClientOptions::certificate");
  // After a reset, a client that sends more would see the reset instead of the alert.
  EXPECT_TRUE(peer.socket().closed_without_reset());
  peer.socket().close();
  EXPECT_TRUE(soon([&] { return logged().find("sent no certificate") != std::string::npos; })) << logged();
}

TEST_F(TlsHostile, ARefusedClientThatDoesNotEndIsEnded) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  RawTls peer = connected();
  ASSERT_TRUE(peer.handshake());
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 1; }));
}

TEST_F(TlsHostile, ARefusedClientMayNotSendWithoutEnd) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  RawTls peer = connected();
  ASSERT_TRUE(peer.handshake());
  ASSERT_TRUE(soon([&] { return security->counters().handshakes_failed == 1; }));
  const Octets much(security::tls::TlsStream::refused_bytes_max + 1);
  peer.socket().send(much);
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 1; }));
}

TEST_F(TlsHostile, RenegotiationIsRefused) {
  client_context_options.tls12 = true;
  start();
  client_context = load(client_context_options);
  SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
  SSL_CTX_clear_options(client_context->get(), SSL_OP_NO_RENEGOTIATION);
  RawTls peer = connected();
  ASSERT_TRUE(peer.handshake());
  ASSERT_TRUE(peer.renegotiate());
  EXPECT_EQ(peer.receive_end(), TlsSession::Read::failed);
  EXPECT_NE(peer.session().error().text.find("no renegotiation"), std::string::npos) << peer.session().error().text;
  EXPECT_EQ(call(client_options()), "ok");
}

TEST_F(TlsHostile, AnEndWithCloseNotifyIsAnsweredSo) {
  start();
  RawTls peer = connected();
  ASSERT_TRUE(peer.handshake());
  peer.send(std::string_view("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  const auto head = peer.receive(15);
  ASSERT_TRUE(head);
  EXPECT_EQ(as_text(*head), "HTTP/1.1 200 OK");
  EXPECT_EQ(peer.receive_end(), TlsSession::Read::closed);
}

// A server that answers any offer with a protocol of its own, with which the client would be sent other frames.
TEST_F(TlsHostile, AProtocolThatWasNotOfferedIsRefused) {
  for (const bool tls12 : {false, true}) {
    SCOPED_TRACE(tls12);
    client_context_options.tls12 = server_options.tls12 = tls12;
    client_context = load(client_context_options);
    if (tls12) SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
    server_context = load(server_options);
    const auto answer = [](SSL*, const unsigned char** out, unsigned char* bytes, const unsigned char*, unsigned,
                           void*) {
      static constexpr unsigned char other[] = {'h', '2'};
      *out = other;
      *bytes = sizeof other;
      return SSL_TLSEXT_ERR_OK;
    };
    SSL_CTX_set_alpn_select_cb(server_context->get(), answer, nullptr);
    const auto client = client_session();
    const auto server_end = server_session();
    EXPECT_FALSE(shake_hands(*client, *server_end));
    EXPECT_HAS(client->error().text, "the TLS handshake failed: ");
  }
}

// A server that ends the bytes of the connection without the end of TLS.
TEST_F(TlsHostile, ACutStreamIsNotTakenForItsEnd) {
  RawListener listener;
  for (const bool cut : {true, false}) {
    std::thread peer([&] {
      RawTls end(listener.accept(), server_session());
      if (!end.handshake()) return;
      const auto prefix = end.receive(wire::hello_prefix_bytes);
      if (!prefix) return;
      static_cast<void>(end.receive(*wire::hello_body_bytes(*prefix)));
      wire::Hello hello = usual_hello();
      hello.calls_max = 64;
      end.send(wire::encode_hello(hello));
      static_cast<void>(end.receive(20));  // A part of the call.
      if (!cut) {
        end.session().shut_down();
        end.flush();
      }
      end.socket().close();
    });
    std::string text;
    sync_wait([](std::string to, TlsClientOptions with, std::string& out) -> Task<void> {
      with.server_name = "localhost";
      ClientOptions client_options;
      client_options.security = TlsClient(with);
      client_options.transports.required = "stream";
      Client client(client_options);
      auto connected = co_await client.connect(to);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<echo>("hi");
      out = reply ? "a reply" : reply.error().text;
    }(listener.address(), client_options(), text));
    peer.join();
    EXPECT_EQ(text.find("without the end of TLS (close_notify)") != std::string::npos, cut) << text;
  }
}

// The last flight of the handshake, a request, close_notify and the end of TCP arrive in one segment.
TEST_F(TlsHostile, ARequestWithItsEndInOneFlightIsAnswered) {
  for (const PollerKind poller : {PollerKind::epoll, PollerKind::io_uring}) {
    for (const unsigned threads : {2U, 0U}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(poller)) + ", threads " + std::to_string(threads));
      options.loop.poller = poller;
      tls_options.handshake_threads = threads;
      server.reset();
      start();
      for (int i = 0; i < 20; ++i) {
        client_context = load(client_context_options);
        RawTls peer(RawSocket::connected_to(server->address()),
                    std::make_unique<TlsSession>(client_context, "localhost", "http/1.1", nullptr));
        ASSERT_TRUE(peer.handshake(false)) << peer.session().error().text;
        const std::string_view request = "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        const ConstBuffer piece{as_bytes(request).data(), request.size()};
        ASSERT_EQ(peer.session().write(std::span(&piece, 1), request.size()), request.size());
        peer.session().shut_down();
        const int one = 1;
        ASSERT_EQ(setsockopt(peer.socket().fd(), IPPROTO_TCP, tcp_cork, &one, sizeof one), 0);
        peer.flush();
        ASSERT_EQ(::shutdown(peer.socket().fd(), SHUT_WR), 0);
        const auto answer = peer.receive(15);
        ASSERT_TRUE(answer) << "attempt " << i << ": " << logged();
        EXPECT_EQ(as_text(*answer), "HTTP/1.1 200 OK");
      }
    }
  }
}

// A body that lasts until the end of the stream could otherwise be shortened by anybody in the network.
TEST_F(TlsHostile, ACutBodyIsNoResponse) {
  server_context = load(server_options);
  RawListener listener;
  for (const bool cut : {true, false}) {
    std::thread peer([&] {
      RawTls end(listener.accept(), std::make_unique<TlsSession>(server_context, std::string("\x08http/1.1")));
      if (!end.handshake() || !end.receive(18)) return;
      end.send(std::string_view("HTTP/1.0 200 OK\r\n\r\npay 1"));
      if (!cut) {
        end.session().shut_down();
        end.flush();
      }
      ::shutdown(end.socket().fd(), SHUT_WR);
      // Until the client has closed the connection.
      while (end.socket().receive(1)) {
      }
    });
    std::string outcome;
    Loop loop({.log = no_log()});
    loop.run([](Loop& on, std::string to, TlsClientOptions with, std::string& out) -> Task<void> {
      with.server_name = "localhost";
      HttpClientOptions http_options;
      http_options.security = TlsClient(with);
      HttpClient client(on, http_options);
      auto got = co_await client.get("https://" + to + "/");
      out = got ? got->body : got.error().text;
    }(loop, listener.address(), client_options(), outcome));
    peer.join();
    if (cut) {
      EXPECT_HAS(outcome, "without the end of TLS (close_notify)");
    } else {
      EXPECT_EQ(outcome, "pay 1");
    }
  }
}

// A resumed handshake verifies no certificate, and gives new tickets.
TEST_F(TlsHostile, TicketsOfTicketsEndWithTheFirst) {
  for (const bool by_server : {true, false}) {
    for (const bool tls12 : {true, false}) {
      SCOPED_TRACE(std::string(by_server ? "server" : "client") + (tls12 ? ", TLS 1.2" : ", TLS 1.3"));
      server_options.session_seconds_max = by_server ? 1 : 3600;
      client_context_options.session_seconds_max = by_server ? 3600 : 1;
      server_context = load(server_options);
      client_context = load(client_context_options);
      if (tls12) SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
      const auto resumes = [&] {
        TlsSession client(client_context, "localhost", "hawser", client_context->take("localhost"));
        const auto other = server_session();
        EXPECT_TRUE(shake_hands(client, *other)) << client.error().text << other->error().text;
        EXPECT_EQ(received_by(client), "");
        return client.resumed();
      };
      EXPECT_FALSE(resumes());
      EXPECT_TRUE(soon([&] { return !resumes(); }));
    }
  }
}

TEST_F(TlsHostile, KeysAreReplacedAfterManyRecords) {
  server_options.records_per_key = 4;
  const auto client = client_session();
  const auto other = server_session();
  ASSERT_TRUE(shake_hands(*client, *other));
  EXPECT_EQ(received_by(*client), "");
  int updates = 0;
  SSL_set_msg_callback_arg(client->ssl(), &updates);
  SSL_set_msg_callback(
      client->ssl(), [](int sent, int, int type, const void* bytes, std::size_t size, SSL*, void* arg) {
        const bool update =
            type == SSL3_RT_HANDSHAKE && size != 0 && *static_cast<const char*>(bytes) == SSL3_MT_KEY_UPDATE;
        *static_cast<int*>(arg) += sent == 0 && update ? 1 : 0;
      });
  std::string written;
  std::string got;
  for (int i = 0; i < 20; ++i) {
    write_text(*other, "record " + std::to_string(i));
    written += "record " + std::to_string(i);
    move_bytes(*other, *client);
    got += received_by(*client);
    // The client's answer, and data with its new keys.
    write_text(*client, "x");
    move_bytes(*client, *other);
    EXPECT_EQ(received_by(*other), "x");
  }
  EXPECT_EQ(got, written);
  EXPECT_EQ(updates, 5);
}

// A side replaces the keys of what it sends. It demands that of its peer only if the peer has sent very much.
TEST_F(TlsHostile, NewKeysAreDemandedOfAPeerThatHasSentVeryMuch) {
  server_options.records_per_key = 4;
  const auto client = client_session();
  const auto other = server_session();
  ASSERT_TRUE(shake_hands(*client, *other));
  EXPECT_EQ(received_by(*client), "");
  int demands = 0;
  SSL_set_msg_callback_arg(client->ssl(), &demands);
  SSL_set_msg_callback(client->ssl(),
                       [](int sent, int, int type, const void* bytes, std::size_t size, SSL*, void* arg) {
                         const auto* const data = static_cast<const char*>(bytes);
                         const bool update = type == SSL3_RT_HANDSHAKE && size == 5 && data[0] == SSL3_MT_KEY_UPDATE;
                         *static_cast<int*>(arg) += sent == 0 && update && data[4] == SSL_KEY_UPDATE_REQUESTED ? 1 : 0;
                       });
  const auto exchange = [&](std::size_t bytes) {
    write_text(*client, text_of(bytes));
    move_bytes(*client, *other);
    EXPECT_EQ(received_by(*other).size(), bytes);
    for (int i = 0; i < 5; ++i) write_text(*other, "r");
    move_bytes(*other, *client);
    EXPECT_EQ(received_by(*client), "rrrrr");
  };
  for (int i = 0; i < 10; ++i) exchange(1000);
  EXPECT_EQ(demands, 0);
  // Eight full records, and what was sent before.
  exchange(8 * 16'384);
  EXPECT_EQ(demands, 1);
  for (int i = 0; i < 10; ++i) exchange(1000);
  EXPECT_EQ(demands, 1);
}

TEST_F(TlsHostile, AConnectionOfTls12EndsAfterTheRecordsOfOneKey) {
  server_options.records_per_key = 4;
  client_context = load(client_context_options);
  SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
  const auto client = client_session();
  const auto other = server_session();
  ASSERT_TRUE(shake_hands(*client, *other));
  ASSERT_EQ(SSL_version(other->ssl()), TLS1_2_VERSION);
  for (int i = 0; i < 8; ++i) {
    write_text(*other, "r");
    move_bytes(*other, *client);
    EXPECT_EQ(received_by(*client), "r");
  }
  const ConstBuffer ninth{as_bytes(std::string_view("r")).data(), 1};
  EXPECT_EQ(other->write(std::span(&ninth, 1), 1), 0U);
  EXPECT_HAS(other->error().text, "has sent 8 records, as many as its key may protect");
  EXPECT_TRUE(other->output().empty());
}

// The only thread waits for a file that has no end.
// A client whose first key share has a group that the server does not accept is asked for another (HelloRetryRequest).
// The server's operations with keys are then still to come, and belong on a thread for handshakes.
TEST_F(TlsHostile, OnlyTheEndOfAHandshakeIsShort) {
  for (const bool retry : {false, true}) {
    SCOPED_TRACE(retry);
    server_context = load(server_options);
    client_context = load(client_context_options);
    ASSERT_EQ(SSL_CTX_set1_groups_list(server_context->get(), "X25519"), 1);
    ASSERT_EQ(SSL_CTX_set1_groups_list(client_context->get(), retry ? "P-256:X25519" : "X25519:P-256"), 1);
    const auto client = client_session();
    const auto server_end = server_session();
    const auto give = [](TlsSession& from, TlsSession& to) {
      const Bytes output = from.output().bytes();
      to.input().append(output);
      from.output().clear();
      return to.handshake();
    };
    EXPECT_FALSE(server_end->awaits_short_end());
    ASSERT_EQ(client->handshake(), TlsSession::Progress::more);
    ASSERT_EQ(give(*client, *server_end), TlsSession::Progress::more);
    if (retry) {
      EXPECT_FALSE(server_end->awaits_short_end());
      EXPECT_LT(server_end->output().bytes().size(), 200u) << "a HelloRetryRequest has no certificate";
      ASSERT_EQ(give(*server_end, *client), TlsSession::Progress::more);
      ASSERT_EQ(give(*client, *server_end), TlsSession::Progress::more);
    }
    EXPECT_TRUE(server_end->awaits_short_end());
    ASSERT_EQ(give(*server_end, *client), TlsSession::Progress::done);
    ASSERT_EQ(give(*client, *server_end), TlsSession::Progress::done);
  }
}

TEST_F(TlsHostile, HandshakesThatWaitAreBounded) {
  tls_options.handshake_threads = 1;
  tls_options.handshakes_max = 1;
  tls_options.reload_interval = std::chrono::seconds(0);
  start();
  const std::string file = tls_options.certificates.front().certificate_file;
  const std::string pipe = file + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::rename(file, file + ".old");
  std::filesystem::create_hard_link(pipe, file);
  const auto hello = client_session();
  ASSERT_EQ(hello->handshake(), TlsSession::Progress::more);
  std::vector<RawSocket> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(RawSocket::connected_to(server->address()));
    peers.back().send(hello->output().bytes());
  }
  EXPECT_TRUE(soon([&] {
    return logged().find("handshakes_max (1) TLS handshakes wait already") != std::string::npos;
  })) << logged();
  const int end = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(end, 0);
  std::filesystem::remove(file);
  std::filesystem::rename(file + ".old", file);
  close(end);
  peers.clear();
  EXPECT_TRUE(soon([&] { return call(client_options()) == "ok"; })) << logged();
}

TEST_F(TlsHostile, ASecondEndDiscardsNothing) {
  const auto client = client_session();
  const auto other = server_session();
  ASSERT_TRUE(shake_hands(*client, *other));
  write_text(*other, "the rest");
  move_bytes(*other, *client);
  client->shut_down();
  client->shut_down();
  EXPECT_EQ(received_by(*client), "the rest");
}

// A peer that does not read: the server stops reading from it, and its memory stays bounded.
TEST_F(TlsHostile, APeerThatTakesNothingIsNotRead) {
  options.send_backlog_bytes_max = 1 << 20;
  start();
  RawTls peer = connected();
  ASSERT_TRUE(peer.handshake());
  const std::string request = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
  std::string many;
  for (int i = 0; i < 1000; ++i) many += request;
  std::size_t sent = 0;
  const auto refused = [&] {
    const ConstBuffer piece{as_bytes(many).data(), many.size()};
    if (peer.session().output().empty()) peer.session().write(std::span(&piece, 1), many.size());
    const std::size_t some = peer.socket().send_some(peer.session().output().bytes());
    if (some != 0) peer.session().output().consume(some);
    sent += some;
    return some == 0;
  };
  // Until nothing is taken for a while.
  for (int idle = 0; idle < 50 && sent < (std::size_t{256} << 20);) {
    idle = refused() ? idle + 1 : 0;
    if (idle != 0) std::this_thread::sleep_for(2ms);
  }
  EXPECT_LT(sent, std::size_t{256} << 20);
  EXPECT_EQ(call(client_options()), "ok");
}

}  // namespace
}  // namespace hawser
