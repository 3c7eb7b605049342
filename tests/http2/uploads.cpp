#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"
#include "tests/output_of.h"

// Routes that read the bodies of their requests in parts, over HTTP/1.1 and HTTP/2.
namespace hawser::http_uploads {

using namespace http_test;

// Answers with the length of the body and the sum of its bytes.
Task<HttpResponse> count_body(HttpRequest&, HttpBodyReader& body) {
  std::size_t bytes = 0;
  std::uint64_t sum = 0;
  HttpResponse response;
  for (;;) {
    const Result<std::string> part = co_await body.read();
    if (!part) {
      cancelled.fetch_add(1);
      response.status = part.error().code == ErrorCode::overloaded ? 503 : 500;
      co_return response;
    }
    if (part->empty()) break;
    bytes += part->size();
    for (const char c : *part) sum += static_cast<unsigned char>(c);
  }
  response.body = std::to_string(bytes) + " " + std::to_string(sum);
  co_return response;
}
Task<HttpResponse> count_when_released(HttpRequest& request, HttpBodyReader& body) {
  waiting.fetch_add(1);
  while (!released.load() && !request.token().stop_requested()) {
    co_await request.loop().sleep(1ms);
  }
  co_return co_await count_body(request, body);
}
Task<HttpResponse> refuse_body(HttpRequest&, HttpBodyReader&) {
  HttpResponse response;
  response.status = 403;
  co_return response;
}
// Sends every part back as it comes.
Task<HttpResponse> echo_body(HttpRequest&, HttpBodyReader& body) {
  HttpResponse response;
  response.stream = [&body](HttpBodyWriter& writer) -> Task<void> {
    for (;;) {
      const Result<std::string> part = co_await body.read();
      if (!part || part->empty()) co_return;
      static_cast<void>(co_await writer.write(std::string_view(*part)));
    }
  };
  co_return response;
}
// Answers with the length of what has arrived before it was released.
Task<HttpResponse> measure_part(HttpRequest& request, HttpBodyReader& body) {
  waiting.fetch_add(1);
  while (!released.load() && !request.token().stop_requested()) {
    co_await request.loop().sleep(1ms);
  }
  const Result<std::string> part = co_await body.read();
  HttpResponse response;
  response.body = part ? std::to_string(part->size()) : part.error().text;
  co_return response;
}

std::string counted(const std::string& body) {
  std::uint64_t sum = 0;
  for (const char c : body) sum += static_cast<unsigned char>(c);
  return std::to_string(body.size()) + " " + std::to_string(sum);
}
std::string upload(const std::string& path, std::size_t bytes, const std::string& fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: a\r\n" + fields + "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
}

class HttpUploads : public ServerFixture {
 protected:
  void start(HttpOptions http_options = {}) {
    make_server();
    server->enable(grpc());
    server->enable(add_routes(http(http_options)
                                  .route("POST", "/count", count_body)
                                  .route("POST", "/held-count", count_when_released)
                                  .route("POST", "/echo", echo_body)
                                  .route("POST", "/measure", measure_part)
                                  .route("POST", "/refuse", refuse_body)));
    start_server();
  }
  // The answer over HTTP/1.1.
  static std::string answer(RawSocket& socket) {
    const std::string head = socket.receive_text("\r\n\r\n");
    const std::size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    const auto body = socket.receive(std::stoul(head.substr(at + 16)));
    return head + (body ? std::string(as_text(*body)) : "");
  }
};

TEST_F(HttpUploads, AreLongerThanMessages) {
  start();
  const std::string body = text_of(5'000'000);  // message_bytes_max is 1 MiB.
  RawSocket socket = RawSocket::connected_to(server->address());
  for (int i = 0; i < 2; ++i) {  // The connection goes on.
    std::thread sender([&] { socket.send(as_bytes(upload("/count", body.size()) + body)); });
    EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n" + counted(body)));
    sender.join();
  }
  std::string chunks = "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size(); at += 100'000) chunks += "186a0\r\n" + body.substr(at, 100'000) + "\r\n";
  std::thread sender([&] { socket.send(as_bytes(chunks + "0\r\n\r\n")); });
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n" + counted(body)));
  sender.join();
  socket.send(as_bytes(upload("/count", 0) + upload("/count", 3) + "abc" + upload("/refuse", 3) + "abc" +
                       upload("/count", 1) + "a"));
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n0 0"));
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n3 294"));
  EXPECT_TRUE(answer(socket).starts_with("HTTP/1.1 403"));  // Its body had arrived.
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n1 97"));
  Http2Client client(server->address());
  EXPECT_EQ(client.post("/count", body).body, counted(body));
  EXPECT_EQ(client.ask("POST", "/count").body, "0 0");
  // Other routes keep their limit.
  RawSocket other = RawSocket::connected_to(server->address());
  other.send(as_bytes(upload("/hello", body.size())));
  EXPECT_TRUE(answer(other).starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(HttpUploads, WaitForTheirHandler) {
  start();
  const std::string part = text_of(64 << 10);
  const std::vector<std::string> parts(128, part);
  std::string body;
  for (const std::string& one : parts) body += one;
  RawSocket first = RawSocket::connected_to(server->address());
  std::thread sender([&] { first.send(as_bytes(upload("/held-count", body.size()) + body)); });
  Http2Client second(server->address());
  const std::int32_t id = second.begin("POST", "/held-count", {}, parts);
  EXPECT_TRUE(second.until([&] { return waiting == 2; }));
  // The connection of HTTP/2 serves other requests meanwhile.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(second.post("/count", text_of(300'000)).body, counted(text_of(300'000)));
  EXPECT_LT(server->counters().receive_bytes, std::uint64_t{4} << 20);
  released = true;
  // A client that sends nothing for some seconds is cut off (receive_rate_min). This one sends in until() only, while
  // the first one has a thread.
  EXPECT_TRUE(second.until([&] { return second.responses[id].closed; }));
  EXPECT_EQ(second.responses[id].body, counted(body));
  EXPECT_TRUE(answer(first).ends_with("\r\n\r\n" + counted(body)));
  sender.join();
}

TEST_F(HttpUploads, AreAskedForWhenTheHandlerReads) {
  start();
  const std::string expects = "Expect: 100-continue\r\n";
  RawSocket asked = RawSocket::connected_to(server->address());
  asked.send(as_bytes(upload("/held-count", 3, expects)));
  Http2Client client(server->address());
  const std::int32_t id = client.begin("POST", "/held-count", {{"expect", "100-continue"}}, {}, false);
  EXPECT_TRUE(client.until([&] { return waiting == 2; }));
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  EXPECT_TRUE(client.responses[id].interim.empty());
  released = true;
  EXPECT_EQ(asked.receive_text("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  asked.send(as_bytes("abc"));
  EXPECT_TRUE(answer(asked).ends_with("\r\n\r\n3 294"));
  EXPECT_TRUE(client.until([&] { return client.responses[id].interim == std::vector<int>{100}; }));
  // A handler that does not read.
  RawSocket refused = RawSocket::connected_to(server->address());
  refused.send(as_bytes(upload("/refuse", 3, expects)));
  const std::string head = answer(refused);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 403"));
  EXPECT_NE(head.find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(refused.closed_by_peer());
  const std::int32_t other = client.begin("POST", "/refuse", {}, {"part"}, false);
  EXPECT_TRUE(client.until([&] { return client.responses[other].closed; }));
  EXPECT_EQ(client.responses[other].status, 403);
  EXPECT_EQ(client.responses[other].code, 0U);
}

// A reset that follows a response makes some clients lose it, if they still send.
TEST_F(HttpUploads, AreDiscardedBehindTheirResponse) {
  start();
  Http2Client client(server->address());
  const std::int32_t shorter = client.begin("POST", "/refuse", {}, {"part"}, false);
  EXPECT_TRUE(client.until([&] { return client.responses[shorter].ended; }));
  EXPECT_EQ(client.responses[shorter].status, 403);
  EXPECT_FALSE(client.responses[shorter].closed);
  const std::string rest("\0\0\4\0\1\0\0\0\1rest", 13);  // DATA that ends stream 1.
  ASSERT_EQ(shorter, 1);
  client.socket().send(as_bytes(rest));
  // One that never ends is reset. A reset of the other one would have come before.
  const std::int32_t endless = client.begin("POST", "/refuse", {}, {"part"}, false);
  EXPECT_TRUE(client.until([&] { return client.responses[endless].closed; }));
  EXPECT_EQ(client.responses[endless].status, 403);
  EXPECT_EQ(client.responses[endless].code, 0U);
  EXPECT_FALSE(client.responses[shorter].closed);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  // A long one as well, before it has arrived.
  const std::size_t sent = client.sent_bytes;
  const std::int32_t longer =
      client.begin("POST", "/refuse", {}, std::vector<std::string>(1024, std::string(16 << 10, 'x')), false);
  EXPECT_TRUE(client.until([&] { return client.responses[longer].closed; }));
  EXPECT_EQ(client.responses[longer].status, 403);
  EXPECT_EQ(client.responses[longer].code, 0U);
  EXPECT_LT(client.sent_bytes - sent, std::size_t{8} << 20);
}

// A client can't be asked for the body within the body of a response.
TEST_F(HttpUploads, AreAskedForBeforeAResponseThatReadsThem) {
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes(upload("/echo", 3, "Expect: 100-continue\r\n")));
  EXPECT_EQ(socket.receive_text("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(socket.receive_text("\r\n\r\n").starts_with("HTTP/1.1 200"));
  socket.send(as_bytes("abc"));
  EXPECT_EQ(socket.receive_text("0\r\n\r\n"), "3\r\nabc\r\n0\r\n\r\n");
  Http2Client client(server->address());
  const std::int32_t id = client.begin("POST", "/echo", {{"expect", "100-continue"}}, {}, false);
  EXPECT_TRUE(client.until([&] { return client.responses[id].status == 200; }));
  EXPECT_EQ(client.responses[id].interim, std::vector<int>{100});
  client.reset(id);
  EXPECT_EQ(client.post("/echo", "abc").body, "abc");
}

// The end of one request does not let the client send more of the next one than the buffer takes.
TEST_F(HttpUploads, WaitBehindAnotherRequest) {
  HttpOptions http_options;
  http_options.body_buffer_bytes = 1000;
  start(http_options);
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes(upload("/count", 3) + "ab"));
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 1; }));
  std::string next = "POST /measure HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 4; ++i) next += "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  socket.send(as_bytes("c" + next + "0\r\n\r\n"));
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n3 294"));
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  released = true;
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n1000"));
}

TEST_F(HttpUploads, MayEndWhereTheBufferIsFull) {
  HttpOptions http_options;
  http_options.body_buffer_bytes = 1000;
  start(http_options);
  RawSocket socket = RawSocket::connected_to(server->address());
  for (const std::size_t bytes : {1000U, 5000U, 1000U}) {  // The connection goes on.
    socket.send(as_bytes(upload("/count", bytes) + std::string(bytes, 'a')));
    EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n" + counted(std::string(bytes, 'a'))));
  }
  // Also if the handler does not read.
  socket.send(as_bytes(upload("/refuse", 1000) + std::string(1000, 'a') + upload("/count", 3) + "abc"));
  EXPECT_TRUE(answer(socket).starts_with("HTTP/1.1 403"));
  EXPECT_TRUE(answer(socket).ends_with("\r\n\r\n3 294"));
}

// The client sends the whole body and ends its direction before the handler reads.
TEST_F(HttpUploads, AreReadAfterTheirClientHasFinished) {
  HttpOptions http_options;
  http_options.body_buffer_bytes = 1000;
  http_options.half_closed_timeout = 60s;
  start(http_options);
  std::vector<RawSocket> sockets;
  std::string chunks = "POST /held-count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 5; ++i) chunks += "3e8\r\n" + std::string(1000, 'a') + "\r\n";
  for (const std::string& request :
       {chunks + "0\r\n\r\n", upload("/held-count", 5000) + std::string(5000, 'a'),
        upload("/held-count", 200'000) + std::string(200'000, 'a'), upload("/held-count", 3) + "aaa"}) {
    sockets.push_back(RawSocket::connected_to(server->address()));
    sockets.back().send(as_bytes(request));
    ::shutdown(sockets.back().fd(), SHUT_WR);
  }
  EXPECT_TRUE(soon([&] { return waiting == 4; }));
  released = true;
  for (const std::size_t bytes : {5000U, 5000U, 200'000U, 3U}) {
    EXPECT_TRUE(answer(sockets.front()).ends_with("\r\n\r\n" + counted(std::string(bytes, 'a')))) << bytes;
    sockets.erase(sockets.begin());
  }
}

TEST_F(HttpUploads, EndWithTheServer) {
  start();
  without_native();
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes(upload("/count", 100) + "abc"));
  Http2Client client(server->address());
  client.begin("POST", "/count", {}, {"abc"}, false);
  EXPECT_TRUE(client.until([&] { return server->counters().calls_in_flight == 2; }));
  server->stop(10ms);
  EXPECT_EQ(cancelled, 2);
}

TEST_F(HttpUploads, EndWithTheirClientOrTheirDeadline) {
  start();
  without_native();
  {
    RawSocket closed = RawSocket::connected_to(server->address());
    closed.send(as_bytes(upload("/count", 100) + "abc"));
    RawSocket reset = RawSocket::connected_to(server->address());
    reset.send(as_bytes(upload("/count", 100) + "abc"));
    Http2Client client(server->address());
    const std::int32_t id = client.begin("POST", "/count", {}, {"abc"}, false);
    client.begin("POST", "/count", {}, {"abc"}, false);
    EXPECT_TRUE(client.until([&] { return server->counters().calls_in_flight == 4; }));
    reset.reset();
    client.reset(id);
    closed.close();
    EXPECT_TRUE(client.until([&] { return cancelled == 3; }));
  }
  EXPECT_TRUE(soon([&] { return cancelled == 4; }));
  RawSocket late = RawSocket::connected_to(server->address());
  late.send(as_bytes(upload("/count", 100, "timeout-ms: 20\r\n")));
  EXPECT_TRUE(answer(late).starts_with("HTTP/1.1 500"));
  EXPECT_TRUE(soon([&] { return cancelled == 5; }));
  RawSocket malformed = RawSocket::connected_to(server->address());
  malformed.send(as_bytes("POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX"));
  EXPECT_TRUE(answer(malformed).starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(malformed.closed_by_peer());
  malformed.close();
  late.close();
  EXPECT_TRUE(soon([&] { return at_rest(*server); }));
}

// A client that does not send what the handler waits for is slow; one that the server keeps waiting is not.
TEST_F(HttpUploads, OnlyClientsThatAreAwaitedCanBeSlow) {
  options.receive_window = 500ms;
  start();
  RawSocket waits = RawSocket::connected_to(server->address());
  waits.send(as_bytes(upload("/held-count", 100'000, "Expect: 100-continue\r\n")));
  Http2Client waits_too(server->address());
  const std::int32_t id = waits_too.begin("POST", "/held-count", {}, {std::string(100, 'x')}, false);
  EXPECT_TRUE(waits_too.until([&] { return waiting == 2; }));
  RawSocket slow = RawSocket::connected_to(server->address());
  slow.send(as_bytes(upload("/count", 100'000) + "abc"));
  EXPECT_TRUE(slow.closed_by_peer());
  EXPECT_TRUE(soon([&] { return cancelled == 1; }));
  EXPECT_EQ(server->counters().slow_peers, 1U);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 2; }));
  waits_too.reset(id);
  waits.close();
}

TEST_F(HttpUploads, ShareTheMemoryOfTheServer) {
  options.receive_bytes_max = 2 << 20;
  options.message_bytes_max = 1 << 20;
  start();
  Http2Client client(server->address());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 20; ++i)
    ids.push_back(client.begin("POST", "/held-count", {}, {std::string(400'000, 'x')}, false));
  EXPECT_TRUE(client.until([&] { return server->counters().memory_refusals > 0; }));
  // One connection may exceed the limit by its receive block: see Http2Hostile.HeaderListsOfManyStreamsAreBounded.
  EXPECT_LE(server->counters().receive_bytes, (std::uint64_t{2} << 20) + (128 << 10));
  for (const std::int32_t id : ids) client.reset(id);
  released = true;
  EXPECT_EQ(client.post("/count", "abc").body, "3 294");
}

TEST_F(HttpUploads, CurlUploads) {
  if (output_of("command -v curl").empty()) GTEST_SKIP() << "curl is not installed";
  start();
  for (const char* version : {"--http1.1 ", "--http2-prior-knowledge "}) {
    const std::string curl = "head -c 30000000 /dev/zero | timeout 60 curl -sS --noproxy '*' " + std::string(version);
    const std::string url = "http://" + server->address() + "/count";
    EXPECT_EQ(output_of(curl + "-X POST -T - " + url), "30000000 0");
    EXPECT_EQ(output_of(curl + "-H 'Expect: 100-continue' --data-binary @- " + url), "30000000 0");
  }
}

}  // namespace hawser::http_uploads
