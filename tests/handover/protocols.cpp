// Clients of protocols without a word for a hand-over, or with one of their own, lose no request in it.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/temporary_folder.h"
#include "hawser/brpc.h"
#include "hawser/grpc.h"
#include "hawser/handover.h"
#include "hawser/http.h"
#include "protocol/baidu_std/test/vectors.h"
#include "tests/raw_peer.h"
#include "tests/testing.h"

namespace hawser::handover_tests {
namespace {

using namespace testing_tools;

// Two servers, of which the second takes over from the first.
class HandoverOfProtocols : public testing::Test {
 protected:
  static void enable_protocols(Server& server) {
    server.enable(Http());
    server.enable(grpc());
    server.enable(baidu_std());
  }
  void SetUp() override {
    enable_protocols(first);
    ASSERT_TRUE(first.start());
    auto nobody = Predecessor::ask(path);
    ASSERT_TRUE(nobody) << error_of(nobody);
    auto begun = Handover::begin(first, std::move(*nobody),
                                 {.leave_max = patience, .taken = [this] { first_taken.set_value(); }});
    ASSERT_TRUE(begun) << error_of(begun);
    offer = std::move(*begun);
  }
  void take_over() {
    auto before = Predecessor::ask(path);
    ASSERT_TRUE(before) << error_of(before);
    second = std::make_unique<Server>(ServerOptions{.listen = before->listen(""), .loop = {.log = no_log()}});
    enable_protocols(*second);
    ASSERT_TRUE(second->start());
    auto begun = Handover::begin(*second, std::move(*before));
    ASSERT_TRUE(begun) << error_of(begun);
    next_offer = std::move(*begun);
  }

  const TemporaryFolder folder;
  const std::string path = (folder.path() / "handover").string();
  std::promise<void> first_taken;
  Server first{{.listen = "127.0.0.1:0", .loop = {.log = no_log()}, .handshake_timeout = patience}};
  std::unique_ptr<Server> second;
  std::unique_ptr<Handover> offer;
  std::unique_ptr<Handover> next_offer;
};

// A client of HTTP/1.1 that keeps its connections, and does not look whether they have ended before it sends.
class KeepAlive {
 public:
  static constexpr std::string_view request = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";

  explicit KeepAlive(const std::string& address) : socket(RawSocket::connected_to(address)) {}
  // False, and a failure of the test, if there is no response. The connection may end behind `last_` only.
  bool receive() {
    const std::string head = socket.receive_text("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n")) << head;
    EXPECT_FALSE(last_) << "a response behind the last one";
    last_ = head.find("Connection: close\r\n") != std::string::npos;
    const std::string body = socket.receive_text("\n");
    EXPECT_EQ(body, "OK\n");
    return body == "OK\n";
  }
  bool send_and_receive() { return socket.send(as_bytes(request)) && receive(); }
  bool last() const { return last_; }
  // Calls until the server ends the connection.
  void call_to_the_end() {
    while (!last_ && send_and_receive()) {
    }
    EXPECT_TRUE(last_);
    EXPECT_TRUE(socket.closed_without_reset());
    socket.close();
  }

  RawSocket socket;

 private:
  bool last_ = false;
};

TEST_F(HandoverOfProtocols, RequestsOfHttpOnKeptConnectionsAreAnswered) {
  KeepAlive busy(first.address());
  KeepAlive idle(first.address());
  KeepAlive in_head(first.address());
  KeepAlive pipelines(first.address());
  KeepAlive in_chunks(first.address());
  for (KeepAlive* one : {&busy, &idle, &in_head, &pipelines, &in_chunks}) {
    EXPECT_TRUE(one->send_and_receive());
    EXPECT_FALSE(one->last());
  }
  in_head.socket.send(as_bytes(KeepAlive::request.substr(0, 20)));
  take_over();
  if (HasFatalFailure()) return;
  busy.call_to_the_end();  // The server has asked all its clients when it has asked this one: it has one loop.
  idle.call_to_the_end();
  in_head.socket.send(as_bytes(KeepAlive::request.substr(20)));
  EXPECT_TRUE(in_head.receive());
  EXPECT_TRUE(in_head.last());
  EXPECT_TRUE(in_head.socket.closed_without_reset());
  pipelines.socket.send(as_bytes(std::string(KeepAlive::request) + std::string(KeepAlive::request)));
  EXPECT_TRUE(pipelines.receive());
  EXPECT_FALSE(pipelines.last());
  EXPECT_TRUE(pipelines.receive());
  EXPECT_TRUE(pipelines.last());
  EXPECT_TRUE(pipelines.socket.closed_without_reset());
  in_chunks.socket.send(
      as_bytes("GET /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" +
               std::string(KeepAlive::request)));
  EXPECT_TRUE(in_chunks.receive());
  EXPECT_FALSE(in_chunks.last());
  EXPECT_TRUE(in_chunks.receive());
  EXPECT_TRUE(in_chunks.last());
  EXPECT_TRUE(in_chunks.socket.closed_without_reset());
  first_taken.get_future().wait();
  EXPECT_EQ(first.counters().calls_refused, 0U);
}

// Neither protocol waits for the connection of HTTP/1.1, which sends nothing for now.
TEST_F(HandoverOfProtocols, OtherProtocolsLearnItAtOnceOrAreServedUntilTheyAreQuiet) {
  namespace vectors = protocol::baidu_std::vectors;
  KeepAlive http(first.address());
  EXPECT_TRUE(http.send_and_receive());
  RawSocket bare = RawSocket::connected_to(first.address());  // baidu_std has no word for it.
  const auto ask = [&] {
    bare.send(vectors::hex(vectors::request));
    const auto header = bare.receive(12);
    const auto body = header ? bare.receive(std::to_integer<std::size_t>((*header)[7])) : std::nullopt;
    return body ? std::string(as_text(Bytes(*body))) : std::string();
  };
  const std::string answer = ask();  // There is no such method.
  EXPECT_NE(answer, "");
  RawSocket http2 = RawSocket::connected_to(first.address());
  http2.send(as_bytes(std::string_view("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33)));
  ASSERT_TRUE(http2.receive(9)) << "the first server has not accepted the connection";
  const auto before = std::chrono::steady_clock::now();
  take_over();
  if (HasFatalFailure()) return;
  // GOAWAY: any stream that the client has opened meanwhile is served.
  const std::string_view goaway("\7\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0", 14);
  EXPECT_TRUE(http2.receive_text(goaway).ends_with(goaway));
  const std::string later = ask();
  // A connection that was quiet for a second has ended.
  if (std::chrono::steady_clock::now() - before < std::chrono::seconds(1)) {
    EXPECT_EQ(later, answer);
    EXPECT_TRUE(bare.closed_without_reset());
  }
  bare.close();
  http.call_to_the_end();
  http2.close();
  first_taken.get_future().wait();
}

}  // namespace
}  // namespace hawser::handover_tests
