#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"

// Clients of HTTP/2 that end their direction of the connection, and read on.
namespace hawser::http_test {
namespace {

class HalfClosedHttp2 : public ServerFixture {
 protected:
  void start() {
    make_server();
    server->enable(grpc());
    server->enable(add_routes(http()));
    start_server();
  }
};

TEST_F(HalfClosedHttp2, GetsTheRepliesOfItsRequests) {
  for (const PollerKind poller : {PollerKind::epoll, PollerKind::io_uring}) {
    native.reset();
    server.reset();
    options.loop.poller = poller;
    start();
    Http2Client client(server->address());
    std::vector<std::int32_t> calls;
    for (int i = 0; i < 10; ++i) {
      calls.push_back(client.begin("GET", "/hello"));
      calls.push_back(client.begin("POST", "/test.Text/Later", {}, {"\"text\""}));
      calls.push_back(client.begin("POST", "/test.Bytes/Repeat",
                                   {{"content-type", "application/grpc"}, {"te", "trailers"}},
                                   {std::string("\0\0\0\0\5bytes", 10)}));
    }
    ::shutdown(client.socket().fd(), SHUT_WR);
    EXPECT_FALSE(client.until([] { return false; }));
    EXPECT_TRUE(client.ended) << "the server ends the connection behind the last reply";
    for (const std::int32_t call : calls) {
      EXPECT_EQ(client.responses[call].status, 200);
      EXPECT_TRUE(client.responses[call].ended);
    }
  }
}

TEST_F(HalfClosedHttp2, LosesARequestThatIsNotComplete) {
  start();
  Http2Client client(server->address());
  const std::int32_t cut = client.begin("POST", "/test.Text/Say", {}, {"\"te"}, false);
  const std::int32_t whole = client.begin("GET", "/hello");
  ::shutdown(client.socket().fd(), SHUT_WR);
  EXPECT_FALSE(client.until([] { return false; }));
  EXPECT_TRUE(client.ended);
  EXPECT_EQ(client.responses[cut].status, 0);
  EXPECT_EQ(client.responses[whole].status, 200);
  EXPECT_TRUE(only_native_left());
}

// Its kernel sends a reset when it receives something, and not before: it has read everything.
TEST_F(HalfClosedHttp2, CancelsItsCallIfItHasGone) {
  start();
  Http2Client client(server->address());
  client.begin("GET", "/wait");
  ASSERT_TRUE(soon([] { return waiting == 1; }));
  EXPECT_EQ(client.ask("GET", "/hello").status, 200);
  client.socket().close();
  EXPECT_TRUE(soon([] { return cancelled == 1; }));
  EXPECT_TRUE(only_native_left());
}

}  // namespace
}  // namespace hawser::http_test
