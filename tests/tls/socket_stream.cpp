#include "hawser/socket_stream.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <utility>

#include "hawser/transport/protect.h"
#include "tests/outlived_loop.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"
#include "tests/tls/software_signer.h"

// SocketStream::secure(): TLS that begins in the midst of a connection.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

// The client of a SocketStream. It never blocks.
class TlsSocketClient {
 public:
  TlsSocketClient(int fd, const std::string& ca_file)
      : socket_(fd),
        session_(load({.ca_file = ca_file, .peer_certificate_bytes_max = 32 * 1024}), "localhost", "", nullptr) {}

  // Sends and receives what it can.
  void step() {
    std::array<std::byte, 4096> space;
    const ssize_t size = ::recv(socket_.fd(), space.data(), space.size(), MSG_DONTWAIT);
    if (size > 0) session_.input().append(Bytes(space).first(static_cast<std::size_t>(size)));
    if (progress_ == TlsSession::Progress::more) progress_ = session_.handshake();
    if (open()) received_ += received_by(session_);
    const Bytes output = session_.output().bytes();
    if (output.empty()) return;
    EXPECT_EQ(::send(socket_.fd(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL),
              static_cast<ssize_t>(output.size()));
    session_.output().clear();
  }
  void send(std::string_view text) {
    write_text(session_, text);
    step();
  }
  bool open() const { return progress_ == TlsSession::Progress::done; }
  const std::string& received() const { return received_; }
  const RawSocket& socket() const { return socket_; }

 private:
  RawSocket socket_;
  TlsSession session_;
  TlsSession::Progress progress_ = TlsSession::Progress::more;
  std::string received_;
};

// The number of threads that perform handshakes.
class SecuredSocket : public testing::TestWithParam<unsigned> {
 protected:
  SecuredSocket() : authority(folder.path().string(), "main") {
    options.certificates = {authority.issue("server")};
    options.handshake_threads = GetParam();
    options.reload_interval = forever;
  }
  void adopt(Loop& on) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client = std::make_unique<TlsSocketClient>(ends[1], authority.ca_file());
    Result<SocketStream> adopted = SocketStream::adopt(on, ends[0]);
    ASSERT_TRUE(adopted) << error_of(adopted);
    stream.emplace(std::move(*adopted));
  }
  void secure(Bytes first = {}) {
    security = TlsServer(options);
    const Result<void> prepared = transport::prepare(*security);
    ASSERT_TRUE(prepared) << error_of(prepared);
    stream->secure(*security, first);
  }
  // Runs the loop and the client until `done` returns true.
  template <class F>
  bool until(F done) {
    return loop.run([](Loop& here, TlsSocketClient& peer, F& condition) -> Task<bool> {
      for (const Time end = here.after(patience); here.now() < end;) {
        peer.step();
        if (condition()) co_return true;
        co_await here.sleep(100us);
      }
      co_return false;
    }(loop, *client, done));
  }
  std::string receive() {
    std::array<std::byte, 64> memory;
    const Result<std::size_t> got = loop.run(stream->receive(memory));
    return got ? std::string(as_text(Bytes(memory).first(*got))) : "error: " + got.error().text;
  }

  TemporaryFolder folder;
  security::tls::Authority authority;
  TlsServerOptions options;
  std::shared_ptr<transport::ServerSecurity> security;
  Loop loop{LoopOptions{.log = no_log()}};
  std::unique_ptr<TlsSocketClient> client;
  std::optional<SocketStream> stream;
};
INSTANTIATE_TEST_SUITE_P(Threads, SecuredSocket, testing::Values(0U, 2U));

TEST_P(SecuredSocket, BytesMayArriveBeforeTheFirstReceive) {
  adopt(loop);
  client->step();  // The beginning of the handshake.
  std::array<std::byte, 64> first;
  const Result<std::size_t> got = loop.run(stream->receive(first));
  ASSERT_TRUE(got) << error_of(got);
  secure(Bytes(first).first(*got));
  ASSERT_TRUE(until([&] { return client->open(); }));
  client->send("early");
  int turns = 20;
  ASSERT_TRUE(until([&] { return --turns == 0; }));
  EXPECT_FALSE(stream->broken());
  EXPECT_EQ(receive(), "early");
  client->send("late");
  EXPECT_EQ(receive(), "late");
}

TEST_P(SecuredSocket, ASendNeedsNoReceive) {
  adopt(loop);
  secure();
  std::optional<Result<void>> sent;
  Scope scope;
  loop.run([](Scope& in, SocketStream& to, std::optional<Result<void>>& result) -> Task<void> {
    in.spawn([](SocketStream& stream_of, std::optional<Result<void>>& out) -> Task<void> {
      out = co_await stream_of.send(as_bytes(std::string_view("welcome")));
    }(to, result));
    co_return;
  }(scope, *stream, sent));
  EXPECT_FALSE(sent);
  EXPECT_TRUE(until([&] { return sent.has_value() && client->received() == "welcome"; }));
  client->send("thanks");
  EXPECT_EQ(receive(), "thanks");
}

TEST_P(SecuredSocket, AFailedHandshakeIsTheErrorOfTheNextReceive) {
  adopt(loop);
  secure();
  const std::string_view plain = "this is a line in plain text\r\n";
  ASSERT_EQ(::send(client->socket().fd(), plain.data(), plain.size(), MSG_DONTWAIT | MSG_NOSIGNAL),
            static_cast<ssize_t>(plain.size()));
  ASSERT_EQ(::shutdown(client->socket().fd(), SHUT_WR), 0);
  EXPECT_TRUE(receive().starts_with("error: ")) << receive();
  EXPECT_TRUE(stream->broken());
}

// A thread of the pool makes a signature when the loop ends, and has nobody to notify afterwards.
TEST(SecuredSocketSigning, OutlivesTheLoopOfAHandshake) {
  struct Gate {
    std::atomic<bool> closed = false;
    std::binary_semaphore entered{0};
    std::binary_semaphore opened{0};
  };
  const auto gate = std::make_shared<Gate>();
  const TemporaryFolder folder;
  security::tls::Authority authority(folder.path().string(), "main");
  TlsCertificate certificate = authority.issue("server");
  const auto signer = std::make_shared<SoftwareSigner>(certificate.key_file);
  certificate.key_file.clear();
  certificate.sign = [gate, signer](const TlsSigningRequest& request) {
    if (gate->closed) {
      gate->entered.release();
      gate->opened.acquire();
    }
    return (*signer)(request);
  };
  std::shared_ptr<transport::ServerSecurity> security = TlsServer({.certificates = {certificate}});
  const Result<void> prepared = transport::prepare(*security);
  ASSERT_TRUE(prepared) << error_of(prepared);
  gate->closed = true;

  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  TlsSocketClient client(ends[1], authority.ca_file());
  EndingLoop loop;
  std::optional<Result<SocketStream>> stream(SocketStream::adopt(*loop, ends[0]));
  ASSERT_TRUE(*stream) << error_of(*stream);
  client.step();
  loop->run([](Loop& here, SocketStream& secured, transport::ServerSecurity& with, Gate& until) -> Task<void> {
    secured.secure(with, {});
    while (!until.entered.try_acquire()) co_await here.sleep(1ms);
  }(*loop, **stream, *security, *gate));
  loop.end();
  EXPECT_TRUE((*stream)->broken());
  gate->opened.release();
  security.reset();  // The threads have ended then.
  stream.reset();
}

}  // namespace
}  // namespace hawser
