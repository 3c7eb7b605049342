// Connections that have just begun when a server stops without a successor: each request on them is answered, at least
// by the refusal of its protocol.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/grpc.h"
#include "hawser/http.h"
#include "protocol/baidu_std/test/vectors.h"
#include "tests/lifecycle/virtual_time.h"

namespace hawser::handover_tests {
namespace {

using namespace lifecycle;
using namespace std::chrono_literals;

constexpr std::string_view http_request = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr std::string_view http2_begin("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
// GOAWAY without an error, behind the stream 0: the client may repeat its requests elsewhere.
constexpr std::string_view http2_goaway("\7\0\0\0\0\0\0\0\0\0\0\0\0\0", 14);

Octets bare_request() {
  namespace vectors = protocol::baidu_std::vectors;
  return octets(as_text(vectors::hex(vectors::request)));
}

void enable_all(Server& server) {
  server.enable(Http());
  server.enable(grpc());
  server.enable(baidu_std());
}

class StopWithFreshConnections : public VirtualTime {
 protected:
  // Begins to stop a server whose clients have connected and have sent nothing.
  Task<void> begin_to_stop(std::size_t clients) {
    server = make_server();
    enable_all(*server);
    REQUIRE_OK(server->start());
    fresh = co_await connect_silent(loop, *network, server->address(), clients);
    REQUIRE(fresh.size() == clients);
    co_await loop.sleep(1s);
    EXPECT_EQ(server->counters().connections_accepted, clients);
    begin = loop.now();
    scope.spawn([](Server& own) -> Task<void> { co_await own.shut_down(1h); }(*server));
  }
  Task<std::string> answer(RawStream& client, Bytes request) {
    client.send(request);
    co_await loop.sleep(100ms);
    co_return std::string(as_text(client.got()));
  }

  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<RawStream>> fresh;
  Time begin{};
  Scope scope;
};

TEST_F(StopWithFreshConnections, EachProtocolRefusesARequest) {
  run([&]() -> Task<void> {
    co_await begin_to_stop(4);
    const std::string http = co_await answer(*fresh[0], as_bytes(http_request));
    EXPECT_TRUE(http.starts_with("HTTP/1.1 503 ")) << http;
    const std::string http2 = co_await answer(*fresh[1], as_bytes(http2_begin));
    EXPECT_NE(http2.find(http2_goaway), std::string::npos);
    const std::string bare = co_await answer(*fresh[2], bare_request());
    EXPECT_NE(bare.find("stop"), std::string::npos) << bare;
    fresh[3]->send(wire::encode_hello(usual_hello()));
    co_await loop.sleep(100ms);
    EXPECT_EQ(fresh[3]->refusal(), "the server is stopping");
    EXPECT_EQ(server->counters().calls_in_flight, 0U);
    fresh.clear();  // The clients close.
    co_await scope.join();
    EXPECT_LT(loop.now() - begin, 1s);
  });
}

TEST_F(StopWithFreshConnections, ClientsThatSendNothingDoNotHoldTheServerUp) {
  run([&]() -> Task<void> {
    co_await begin_to_stop(2);
    co_await loop.sleep(300ms);
    EXPECT_FALSE(fresh[0]->ended());
    fresh[1]->send(as_bytes(http_request.substr(0, 3)));
    co_await scope.join();
    EXPECT_LE(loop.now() - begin, 2s);
    auto gone = co_await eventually(loop, [&] { return fresh[0]->ended() && fresh[1]->ended(); });
    EXPECT_TRUE(gone);
  });
}

TEST_F(StopWithFreshConnections, AStopEndsWithTheLastOfThem) {
  run([&]() -> Task<void> {
    co_await begin_to_stop(2);
    fresh.clear();
    co_await scope.join();
    EXPECT_LT(loop.now() - begin, 250ms);
  });
}

// While the first loop is busy, clients wait in the kernel. The first loop accepts them when the stop has begun, and
// gives every second one to the other loop.
TEST(StopOfTwoLoops, ConnectionsThatTheKernelHasAreAnswered) {
  std::promise<void> entered;
  std::promise<void> released;
  Server server({.listen = "127.0.0.1:0", .threads = 2, .loop = {.log = no_log()}, .handshake_timeout = patience});
  enable_all(server);
  server.enable(Http().route("GET", "/stop", [&](HttpRequest&) -> Task<HttpResponse> {
    entered.set_value();
    released.get_future().wait();
    server.stop(patience);
    co_return HttpResponse{};
  }));
  ASSERT_TRUE(server.start());
  RawSocket first = RawSocket::connected_to(server.address());  // It belongs to the first loop.
  first.send(as_bytes(std::string_view("GET /stop HTTP/1.1\r\nHost: a\r\n\r\n")));
  entered.get_future().wait();
  constexpr std::size_t protocols = 4;
  std::vector<RawSocket> sockets;
  for (std::size_t i = 0; i < 2 * protocols; ++i) {
    RawSocket& socket = sockets.emplace_back(RawSocket::connected_to(server.address()));
    switch (i / 2) {
      case 0: socket.send(as_bytes(http_request)); break;
      case 1: socket.send(as_bytes(http2_begin)); break;
      case 2: socket.send(bare_request()); break;
      case 3: socket.send(wire::encode_hello(usual_hello())); break;
    }
  }
  released.set_value();
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    EXPECT_TRUE(sockets[i].receive(1)) << "connection " << i << " has no answer";
    sockets[i].close();
  }
  EXPECT_TRUE(first.receive_text("\r\n\r\n").starts_with("HTTP/1.1 200 "));
  first.close();
  server.stop(patience);
}

}  // namespace
}  // namespace hawser::handover_tests
