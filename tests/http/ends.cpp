#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/connection_age.h"
#include "tests/http_server_fixture.h"

// Responses that the server cannot complete.
namespace hawser::http_test {
namespace {

// Counts the first part in `waiting`.
Task<HttpResponse> count_in_parts(HttpRequest&, HttpBodyReader& body) {
  std::size_t bytes = 0;
  for (;;) {
    const Result<std::string> part = co_await body.read();
    if (!part || part->empty()) break;
    bytes += part->size();
    if (bytes == part->size()) waiting.fetch_add(1);
  }
  HttpResponse response;
  response.body = std::to_string(bytes) + " bytes";
  co_return response;
}

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

// The server reads the body for a route that runs, and nothing behind it.
TEST_F(HttpEnds, AStopWaitsForTheRestOfABodyThatARouteReads) {
  make_server();
  server->enable(add_routes(http()).route("POST", "/counted", count_in_parts));
  start_server();
  RawSocket idle = asked("GET /empty HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(idle.receive_text("\r\n\r\n"), "");
  RawSocket upload = asked("POST /counted HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  native->stop();
  native.reset();
  std::thread stopping([&] { server->stop(patience); });
  EXPECT_TRUE(idle.closed_by_peer());  // The stop has begun.
  upload.send(as_bytes("worldGET /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
  const std::string response = upload.receive_all();
  EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK\r\n")) << response;
  EXPECT_TRUE(response.ends_with("\r\n\r\n10 bytes")) << response;
  EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << response;
  stopping.join();
}

// Its client, or a proxy before the server, sees why: not the end of a connection, which it might take for a crash.
TEST_F(HttpEnds, ABodyThatComesTooSlowlyIsAnswered) {
  options.receive_window = 400ms;
  make_server();
  server->enable(add_routes(http()).route("POST", "/counted", count_in_parts));
  const Result<void> started = server->start();
  ASSERT_TRUE(started) << error_of(started);
  std::vector<RawSocket> slow;
  for (const char* const path : {"/test.Text/Wait", "/counted"}) {
    slow.push_back(asked("POST " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhello"));
  }
  for (RawSocket& one : slow) {
    const std::string response = one.receive_all();
    EXPECT_TRUE(response.starts_with("HTTP/1.1 408 Request Timeout\r\n")) << response;
    EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << response;
    EXPECT_NE(response.find("send it faster than receive_rate_min"), std::string::npos) << response;
  }
  EXPECT_EQ(server->counters().slow_peers, 2U);
}

// No request is lost: the client reads in a response that the connection ends.
TEST_F(HttpEnds, AnOldConnectionEndsWithAResponse) {
  make_server();
  bound_connection_age(*server, {.max = 50ms});
  server->enable(add_routes(http()));
  const Result<void> started = server->start();
  ASSERT_TRUE(started) << error_of(started);
  RawSocket socket = RawSocket::connected_to(server->address());
  std::string head;
  do {
    socket.send(as_bytes("GET /empty HTTP/1.1\r\nHost: a\r\n\r\n"));
    head = socket.receive_text("\r\n\r\n");
    ASSERT_EQ(head.find("HTTP/1.1 204 "), 0U) << head;
  } while (head.find("Connection: close\r\n") == std::string::npos);
  EXPECT_TRUE(socket.closed_by_peer());
}

}  // namespace
}  // namespace hawser::http_test
