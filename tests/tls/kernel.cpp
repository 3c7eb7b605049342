#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "hawser/http_client.h"
#include "tests/tls/kernel_module.h"
#include "tests/tls/kernel_peer.h"

// Connections whose kernel encrypts. Their kernel needs the module tls, which the guest of the tests for RDMA has
// (tools/rdma-guest). They are skipped elsewhere.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

constexpr const char* all_ciphers[] = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                                       "TLS_CHACHA20_POLY1305_SHA256"};

class KernelTlsInRdmaGuest : public TlsFixture {
 protected:
  void SetUp() override {
    if (kernel_lacks_tls()) GTEST_SKIP() << "the kernel has no module tls";
    ASSERT_EQ(security::tls::examine_kernel().problem, "");
    kernel_options.kernel = TlsKernel::required;
    kernel_options.certificates = {authority.issue("server")};
    kernel_options.peer_certificate_bytes_max = 32 * 1024;
    openssl_options = kernel_options;
    openssl_options.kernel = TlsKernel::off;
  }

  struct Ends {
    std::unique_ptr<KernelEnd> kernel;
    std::unique_ptr<OpensslEnd> openssl;
  };
  // A connection after the handshake. The end whose kernel encrypts is the server or the client.
  Ends connect(KernelEnd::Settings settings = {}, const char* cipher = nullptr, int receive_buffer_bytes = 0) {
    const auto of_role = [this](security::tls::ContextOptions of_end, bool as_server) {
      of_end.server = as_server;
      of_end.ca_file = as_server ? "" : authority.ca_file();
      return of_end;
    };
    const security::tls::ContextOptions of_kernel = of_role(kernel_options, settings.server);
    const auto kernel_context = load(of_kernel);
    const auto openssl_context = load(of_role(openssl_options, !settings.server));
    if (cipher != nullptr) {
      EXPECT_EQ(SSL_CTX_set_ciphersuites((settings.server ? kernel_context : openssl_context)->get(), cipher), 1);
    }
    if (tls12) SSL_CTX_set_max_proto_version(openssl_context->get(), TLS1_2_VERSION);
    int sockets[2] = {-1, -1};
    connect_sockets(sockets, receive_buffer_bytes);
    const auto make_session = [](const std::shared_ptr<const security::tls::TlsContext>& context, bool as_server) {
      return as_server ? std::make_unique<TlsSession>(context, std::string())
                       : std::make_unique<TlsSession>(context, "localhost", "", nullptr);
    };
    shared = std::make_shared<security::tls::TlsShared>(of_kernel, forever, 0, 16);
    Ends ends;
    const bool as_server = settings.server;
    ends.kernel = std::make_unique<KernelEnd>(
        sockets[0], shared,
        [=]() -> Result<std::unique_ptr<TlsSession>> { return make_session(kernel_context, as_server); }, settings);
    ends.openssl = std::make_unique<OpensslEnd>(sockets[1], make_session(openssl_context, !as_server));
    EXPECT_EQ(ends.openssl->handshake(), true) << ends.openssl->session().error().text;
    return ends;
  }
  static void connect_sockets(int (&sockets)[2], int receive_buffer_bytes) {
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    sockets[1] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer_bytes != 0) {
      setsockopt(sockets[1], SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    EXPECT_EQ(::bind(listening, where, size), 0);
    EXPECT_EQ(::listen(listening, 1), 0);
    EXPECT_EQ(::getsockname(listening, where, &size), 0);
    EXPECT_EQ(::connect(sockets[1], where, size), 0);
    sockets[0] = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    EXPECT_GE(sockets[0], 0);
    ::close(listening);
  }
  std::string s_client(const std::string& flags) {
    return output_of(
        "printf 'GET /hello HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' | timeout 60 openssl "
        "s_client -ign_eof -connect " +
        server->address() + " -CAfile " + authority.ca_file() + " " + flags);
  }

  security::tls::ContextOptions kernel_options;
  security::tls::ContextOptions openssl_options;
  std::shared_ptr<security::tls::TlsShared> shared;
  bool tls12 = false;
};

TEST_F(KernelTlsInRdmaGuest, EveryCipherCarriesEverySizeAtEitherSide) {
  for (const char* const cipher : all_ciphers) {
    for (const bool as_server : {true, false}) {
      SCOPED_TRACE(std::string(cipher) + (as_server ? " server" : " client"));
      const PollerKind poller = as_server ? PollerKind::epoll : PollerKind::io_uring;
      Ends ends = connect({.server = as_server, .poller = poller}, cipher);
      for (const std::size_t size : {1, 2, 1000, 16'383, 16'384, 16'385, 70'000, 400'000}) {
        const std::string text = text_of(size, static_cast<char>('a' + size % 3));
        std::thread sending([&] { ends.openssl->send(text.substr(0, size)); });
        sending.join();
        EXPECT_TRUE(ends.openssl->receive(size) == text)
            << size << ": " << ends.openssl->session().error().text << " " << ends.kernel->reason();
      }
      EXPECT_TRUE(soon([&] { return !ends.kernel->details().empty(); }));
      EXPECT_HAS(ends.kernel->details(), "the kernel encrypts (");
      EXPECT_EQ(shared->kernel_begun.load(), 1U);
      EXPECT_EQ(shared->kernel_refused.load(), 0U);
    }
  }
}

TEST_F(KernelTlsInRdmaGuest, CallsOfEverySizePassBetweenTwoKernels) {
  tls_options.kernel = TlsKernel::required;
  options.loop.poller = PollerKind::io_uring;
  start();
  TlsClientOptions with = client_options();
  with.kernel = TlsKernel::required;
  const TlsClient tls(with);
  ClientOptions stream;
  stream.transports.required = "stream";
  // The emulated processor of the guest encrypts and decrypts slowly.
  for (const std::size_t size : {0, 1, 100, 16'384, 100'000, 400'000}) {
    EXPECT_EQ(call(text_of(size), tls, stream), "ok") << size;
  }
  EXPECT_EQ(security->counters().kernel_begun, 6U);
  EXPECT_EQ(tls.counters().kernel_begun, 6U);
  EXPECT_EQ(security->counters().kernel_refused + security->counters().kernel_ended, 0U);
  // A path beside the stream is not affected.
  EXPECT_EQ(call("hi", tls), "ok");
  EXPECT_EQ(used_transport, "shm");
}

TEST_F(KernelTlsInRdmaGuest, OpensslProgramsAreServed) {
  tls_options.kernel = TlsKernel::automatic;
  start();
  for (const std::string cipher : all_ciphers) {
    EXPECT_HAS(s_client("-tls1_3 -ciphersuites " + cipher), "hello over http");
  }
  EXPECT_EQ(security->counters().kernel_begun, 3U);
  // The kernel does not encrypt TLS 1.2.
  EXPECT_HAS(s_client("-tls1_2"), "hello over http");
  EXPECT_EQ(security->counters().kernel_refused, 1U);
  EXPECT_HAS(logged(), "the peer speaks TLSv1.2");
}

TEST_F(KernelTlsInRdmaGuest, APeerThatDemandsNewKeysIsRefusedByACleanEnd) {
  Ends ends = connect();
  ends.openssl->send("before");
  EXPECT_EQ(ends.openssl->receive(6), "before");
  // Many keys of the peer alone are of no concern.
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(SSL_key_update(ends.openssl->session().ssl(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    ends.openssl->send("x" + std::to_string(i % 10));
    EXPECT_EQ(ends.openssl->receive(2), "x" + std::to_string(i % 10));
  }
  ASSERT_EQ(SSL_key_update(ends.openssl->session().ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
  ends.openssl->send("after");
  EXPECT_EQ(ends.openssl->receive_all(), "");
  EXPECT_EQ(ends.openssl->end(), TlsSession::Read::closed) << ends.openssl->session().error().text;
  EXPECT_TRUE(soon([&] { return ends.kernel->ended(); }));
  EXPECT_HAS(ends.kernel->reason(), "the peer demands new keys");
  EXPECT_EQ(shared->kernel_ended.load(), 1U);
}

TEST_F(KernelTlsInRdmaGuest, AConnectionEndsCleanlyBeforeItsKeyHasProtectedTooMuch) {
  kernel_options.records_per_key = 8;
  for (const char* const cipher : all_ciphers) {
    SCOPED_TRACE(cipher);
    Ends ends = connect({}, cipher);
    const bool bounded = cipher != all_ciphers[2];
    std::size_t received = 0;
    std::string some;
    for (int i = 0; i < 100; ++i) {
      ends.kernel->say(text_of(10'000));
      some = ends.openssl->receive(10'000);
      received += some.size();
      if (some.size() < 10'000) break;
    }
    if (!bounded) {
      EXPECT_EQ(received, 1'000'000U);
      continue;
    }
    EXPECT_LE(received, 2U * 8 * 16'384 + 10'000);
    EXPECT_GE(received, 200'000U);
    EXPECT_EQ(ends.openssl->end(), TlsSession::Read::closed);
    EXPECT_TRUE(soon([&] { return ends.kernel->ended(); }));
    EXPECT_HAS(ends.kernel->reason(), "as many as its key may protect");
    EXPECT_EQ(shared->kernel_ended.load(), 1U);
  }
}

TEST_F(KernelTlsInRdmaGuest, ASlowReaderReceivesEverythingAndThenTheEnd) {
  for (const bool io_uring : {false, true}) {
    SCOPED_TRACE(io_uring);
    // Small buffers, so that records wait in the kernel's TLS when the end is demanded.
    Ends ends = connect({.poller = io_uring ? PollerKind::io_uring : PollerKind::epoll, .send_buffer_bytes = 4608},
                        nullptr, 4096);
    const std::string text = text_of(1'000'000);
    ends.kernel->say(text, true);
    std::this_thread::sleep_for(100ms);
    std::string all;
    while (all.size() < 200'000) {
      all += ends.openssl->receive(20'000);
      std::this_thread::sleep_for(2ms);
    }
    all += ends.openssl->receive_all();
    EXPECT_EQ(all.size(), text.size());
    EXPECT_TRUE(all == text);
    EXPECT_EQ(ends.openssl->end(), TlsSession::Read::closed) << ends.openssl->session().error().text;
    EXPECT_TRUE(ends.openssl->stream_ends());
    EXPECT_FALSE(ends.kernel->ended());
  }
}

TEST_F(KernelTlsInRdmaGuest, OneSideMaySendAfterTheOtherHasEnded) {
  const std::string rest = text_of(300'000);
  Ends ends = connect({.continues = true, .after_end = rest});
  ends.openssl->send("question");
  EXPECT_EQ(ends.openssl->receive(8), "question");
  ends.openssl->session().shut_down();
  ends.openssl->flush();
  shutdown(ends.openssl->fd(), SHUT_WR);
  // OpenSSL reads on after its own end.
  EXPECT_TRUE(ends.openssl->receive(rest.size()) == rest);
  EXPECT_EQ(ends.openssl->receive_all(), "");
  EXPECT_EQ(ends.openssl->end(), TlsSession::Read::closed) << ends.openssl->session().error().text;
  EXPECT_TRUE(ends.openssl->stream_ends());
}

TEST_F(KernelTlsInRdmaGuest, ARecordThatIsWrongIsAnsweredWithAnAlert) {
  Ends ends = connect();
  ends.openssl->send("good");
  EXPECT_EQ(ends.openssl->receive(4), "good");
  const Octets wrong = octets(std::string_view("\x17\x03\x03\x00\x20", 5)) + Octets(32);
  ends.openssl->send_raw(wrong);
  EXPECT_EQ(ends.openssl->receive_all(), "");
  EXPECT_EQ(ends.openssl->end(), TlsSession::Read::failed);
  EXPECT_HAS(ends.openssl->session().error().text, "bad record mac");
  EXPECT_TRUE(soon([&] { return ends.kernel->ended(); }));
}

// Alerts and ends at odd moments, while the kernel has much to send, and one that destroys the stream then.
TEST_F(KernelTlsInRdmaGuest, PeersThatVanishEndOnlyTheirConnection) {
  for (int kind = 0; kind < 5; ++kind) {
    SCOPED_TRACE(kind);
    Ends ends = connect({.poller = kind % 2 == 0 ? PollerKind::epoll : PollerKind::io_uring});
    ends.kernel->say(text_of(3'000'000), kind == 4);
    EXPECT_EQ(ends.openssl->receive(50'000).size() >= 50'000, true);
    switch (kind) {
      case 0: ends.openssl->reset(); break;
      case 1: ends.openssl->close(); break;
      case 2:  // An alert that ends the connection, in plain text as an attacker would.
        ends.openssl->send_raw(octets(std::string_view("\x15\x03\x03\x00\x02\x02\x28", 7)));
        break;
      case 3: ends.kernel->stop(); break;
      default: ends.openssl->reset(); break;
    }
    if (kind != 3) {
      EXPECT_TRUE(soon([&] { return ends.kernel->ended(); }));
      EXPECT_NE(ends.kernel->reason(), "");
    }
  }
}

TEST_F(KernelTlsInRdmaGuest, ManyDemandsForNewKeysAreOneEnd) {
  Ends ends = connect();
  ends.openssl->send("x");
  EXPECT_EQ(ends.openssl->receive(1), "x");
  for (int i = 0; i < 1000; ++i) {
    SSL_key_update(ends.openssl->session().ssl(), SSL_KEY_UPDATE_REQUESTED);
    write_text(ends.openssl->session(), "y");
  }
  ends.openssl->flush();
  EXPECT_EQ(ends.openssl->receive_all(), "");
  EXPECT_TRUE(soon([&] { return ends.kernel->ended(); }));
  EXPECT_EQ(shared->kernel_ended.load(), 1U);
}

TEST_F(KernelTlsInRdmaGuest, HundredsOfConnectionsAtOnce) {
  // A thousand take minutes of an emulated processor. HAWSER_CONNECTIONS=1000 has them.
  const char* const wanted = std::getenv("HAWSER_CONNECTIONS");
  const int connections = wanted != nullptr ? std::atoi(wanted) : 200;
  tls_options.kernel = TlsKernel::required;
  start();
  openssl_options.certificates.clear();
  openssl_options.ca_file = authority.ca_file();
  const auto context = load(openssl_options);
  const std::string request = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
  std::vector<OpensslEnd> peers;
  for (int i = 0; i < connections; ++i) {
    RawSocket socket = RawSocket::connected_to(server->address());
    peers.emplace_back(dup(socket.fd()),
                       std::make_unique<TlsSession>(context, "localhost", "", context->take("localhost")));
    ASSERT_TRUE(peers.back().handshake()) << i;
    // Receives the tickets, too.
    peers.back().send(request);
    EXPECT_HAS(peers.back().receive(15), "HTTP/1.1 200 OK");
  }
  EXPECT_EQ(security->counters().kernel_begun, static_cast<std::uint64_t>(connections));
  for (OpensslEnd& peer : peers) peer.send(request);
  std::size_t answered = 0;
  for (OpensslEnd& peer : peers) answered += peer.receive_some().empty() ? 0 : 1;
  EXPECT_EQ(answered, peers.size());
  peers.clear();
  EXPECT_EQ(call(client_options()), "ok");
}

}  // namespace
}  // namespace hawser
