#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/http_server_fixture.h"

// Responses that the server cannot complete.
namespace hawser::http_test {
namespace {

class HttpEnds : public ServerFixture {
 protected:
  void start() {
    make_server();
    server->enable(add_routes(http()));
    start_server();
  }
  RawSocket asked(std::string_view requests) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(requests));
    return socket;
  }
};

// The head, what was written, and earlier responses arrive although the stream throws in the tick of its begin.
TEST_F(HttpEnds, AStreamThatThrowsAtOnceKeepsItsHead) {
  start();
  std::string all = asked(
                        "GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /cut HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
                        .receive_all();
  EXPECT_EQ(all.find("HTTP/1.1 200 OK\r\n"), 0U);
  EXPECT_GT(all.size(), 1U << 20);
  all.erase(0, all.rfind("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(all.substr(all.find("\r\n\r\n")), "\r\n\r\n4\r\npart\r\n");
  EXPECT_TRUE(asked("GET /cut HTTP/1.0\r\n\r\n").receive_all().ends_with("\r\n\r\npart"));
}

// The client has not cancelled the call: it may try another server.
TEST_F(HttpEnds, ACallThatTheServerEndsIsUnavailable) {
  start();
  RawSocket busy = asked("POST /test.Text/Wait HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\"\"");
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  native->stop();
  native.reset();
  std::thread stopping([&] { server->stop(1ms); });
  const std::string response = busy.receive_all();
  EXPECT_EQ(response.substr(0, 33), "HTTP/1.1 503 Service Unavailable\r") << response;
  EXPECT_NE(response.find("\"code\":\"unavailable\""), std::string::npos) << response;
  stopping.join();
}

}  // namespace
}  // namespace hawser::http_test
