#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "tests/http2_client.h"
#include "tests/http_routes.h"
#include "tests/raw_peer.h"

// Routes for operators, on a server that is full.
namespace hawser::http_test {
namespace {

class OperatorRoutes : public ::testing::Test {
 protected:
  OperatorRoutes() {
    waiting = 0;
    cancelled = 0;
  }
  void start(std::size_t calls_max) {
    ServerOptions options{.calls_max = calls_max};
    options.loop.log = no_log();
    server = std::make_unique<Server>(options);
    server->enable(grpc());
    HttpOptions http_options;
    http_options.half_closed_timeout = 0ms;  // A client that has closed its connection ends its call at once.
    server->enable(http(http_options)
                       .route("GET", "/wait", wait_in_route)
                       .route("GET", "/hello", hello)
                       .operator_route("GET", "/operator/hello", hello)
                       .operator_route("GET", "/operator/wait", wait_in_route));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  RawSocket asked(const std::string& path) const {
    RawSocket socket = RawSocket::connected_to(server->address());
    EXPECT_TRUE(socket.send(as_bytes("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")));
    return socket;
  }
  std::string status_of(const std::string& path) const {
    RawSocket socket = asked(path);
    return socket.receive_text("\r\n").substr(9, 3);
  }
  int http2_status_of(const std::string& path) const {
    Http2Client client(server->address());
    return client.ask("GET", path).status;
  }

  std::unique_ptr<Server> server;
};

TEST_F(OperatorRoutes, AreServedWhenTheServerIsFullUpToTheirReserve) {
  start(2);
  std::vector<RawSocket> callers;
  for (int i = 0; i < 2; ++i) callers.push_back(asked("/wait"));
  ASSERT_TRUE(soon([] { return waiting == 2; }));
  EXPECT_EQ(status_of("/hello"), "503");
  EXPECT_EQ(http2_status_of("/hello"), 503);
  EXPECT_EQ(status_of("/operator/hello"), "200");
  EXPECT_EQ(http2_status_of("/operator/hello"), 200);
  for (std::size_t i = 0; i < operator_calls_reserve; ++i) callers.push_back(asked("/operator/wait"));
  ASSERT_TRUE(soon([] { return waiting == 2 + static_cast<int>(operator_calls_reserve); }));
  EXPECT_EQ(status_of("/operator/hello"), "503");
  EXPECT_EQ(http2_status_of("/operator/hello"), 503);
  callers.pop_back();
  EXPECT_TRUE(soon([&] { return status_of("/operator/hello") == "200"; }));
  // The reserve is not for others.
  EXPECT_EQ(status_of("/hello"), "503");
}

}  // namespace
}  // namespace hawser::http_test
