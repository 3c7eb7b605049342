#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "hawser/scope.h"
#include "protocol/http/gzip.h"
#include "protocol/http/gzip_stream.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"
#include "tests/output_of.h"

// Content-Encoding of responses that are sent in parts, over HTTP/1.1 and HTTP/2.
namespace hawser::http_gzip_streams {

using namespace http_test;

inline std::atomic<int> allowed{0};  // Events that may be sent.

std::string event(int number) { return "data: event " + std::to_string(number) + "\n\n"; }
Task<void> send_events(HttpBodyWriter& writer) {
  for (int i = 0; i < 3; ++i) {
    while (allowed.load() <= i) {
      co_await Loop::current()->sleep(1ms);
    }
    const std::string text = event(i);
    if (const Result<void> written = co_await writer.write(text); !written) co_return;
  }
}
Task<HttpResponse> events(HttpRequest&) {
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.stream = send_events;
  co_return response;
}

// Text of about that many bytes, of the numbers from 0.
std::string numbers(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; text.size() < bytes; ++i) text += std::to_string(i * 7919) + (i % 7 == 0 ? "\n" : " ");
  return text;
}
// Sends the numbers of a query "bytes,part" in parts of that size, with fields from the request.
Task<HttpResponse> sent(HttpRequest& request) {
  HttpResponse response;
  const std::string query(request.query());
  const std::size_t comma = query.find(',');
  const std::size_t part = std::stoul(query.substr(comma + 1));
  const std::string text = numbers(std::stoul(query.substr(0, comma)));
  if (const auto type = request.header("x-type")) response.content_type = std::string(*type);
  if (const auto status = request.header("x-status")) response.status = std::stoi(std::string(*status));
  if (const auto field = request.header("x-field")) {
    const std::size_t equals = field->find('=');
    response.headers.emplace_back(field->substr(0, equals), field->substr(equals + 1));
  }
  response.stream = [text, part](HttpBodyWriter& writer) -> Task<void> {
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(std::min(part, rest.size()))) {
      if (const Result<void> written = co_await writer.write(rest.substr(0, part)); !written) co_return;
    }
    static_cast<void>(co_await writer.write(std::string_view()));
  };
  co_return response;
}

// Two coroutines send parts of one letter each, of which each arrives whole.
constexpr std::size_t part_of_two = 50'000;
Task<void> send_letters(HttpBodyWriter& writer, char first) {
  std::minstd_rand random;
  for (int i = 0; i < 10; ++i) {
    std::string part(part_of_two, first);
    for (char& c : part) c = static_cast<char>(first + random() % 13);
    if (const Result<void> written = co_await writer.write(part); !written) co_return;
  }
}
Task<HttpResponse> both(HttpRequest&) {
  HttpResponse response;
  response.stream = [](HttpBodyWriter& writer) -> Task<void> {
    Scope scope;
    scope.spawn(send_letters(writer, 'a'));
    scope.spawn(send_letters(writer, 'n'));
    co_await scope.join();
  };
  co_return response;
}

// The body of a chunked response as far as it has arrived; nothing if the chunks are malformed.
struct Unchunked {
  std::string body;
  std::size_t chunks = 0;
  bool ended = false;
};
std::optional<Unchunked> unchunked(std::string_view text) {
  Unchunked out;
  while (!text.empty()) {
    const std::size_t line = text.find("\r\n");
    if (line == std::string_view::npos) return out;
    const std::size_t size = std::stoul(std::string(text.substr(0, line)), nullptr, 16);
    text.remove_prefix(line + 2);
    if (size == 0) {
      out.ended = text == "\r\n";
      return out;
    }
    if (text.size() < size + 2) return out;
    if (text.substr(size, 2) != "\r\n") return std::nullopt;
    out.body += text.substr(0, size);
    ++out.chunks;
    text.remove_prefix(size + 2);
  }
  return out;
}

// Decompresses what has arrived of a body.
std::string inflated(std::string_view packed) {
  const std::unique_ptr<protocol::http::BodyInflater> inflater = protocol::http::BodyInflater::make();
  inflater->give(std::string(packed));
  std::string out;
  while (!inflater->wants_input()) {
    const Result<std::string> part = inflater->next(1 << 20);
    if (!part) return "no gzip";
    out += *part;
  }
  return out;
}
// Decompresses a whole body.
std::string unpacked(std::string_view packed) {
  const Result<Buffer> text = protocol::http::gunzip(as_bytes(packed), 64 << 20);
  return text ? std::string(text->text()) : "no gzip";
}

class HttpGzipStreams : public ServerFixture {
 protected:
  void SetUp() override {
    if (!protocol::http::can_gzip()) GTEST_SKIP() << "built without zlib";
    allowed = 0;
  }
  void start(HttpOptions http_options = {}) {
    make_server();
    server->enable(grpc());
    server->enable(add_routes(
        http(http_options).route("GET", "/events", events).route("GET", "/sent", sent).route("GET", "/both", both)));
    start_server();
  }
  struct Answer {
    std::string head;
    std::string raw;  // The body as it was sent.
    Unchunked body;
    bool gzipped() const { return head.find("Content-Encoding: gzip\r\n") != std::string::npos; }
    bool has(std::string_view text) const { return head.find(text) != std::string::npos; }
  };
  Answer ask(const std::string& path, const std::string& fields = "Accept-Encoding: gzip\r\n",
             const std::string& method = "GET", const std::string& version = "1.1") {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(
        as_bytes(method + " " + path + " HTTP/" + version + "\r\nHost: a\r\nConnection: close\r\n" + fields + "\r\n"));
    const std::string all = socket.receive_all();
    const std::size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    Answer answer{all.substr(0, end + 2), all.substr(end + 4), {}};
    if (answer.has("Transfer-Encoding: chunked")) {
      const std::optional<Unchunked> body = unchunked(answer.raw);
      EXPECT_TRUE(body) << path;
      if (body) answer.body = *body;
    }
    return answer;
  }
  const Http2Client::Fields accepts = {{"accept-encoding", "gzip"}};
};

TEST_F(HttpGzipStreams, EachEventArrivesWhenItIsSent) {
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes("GET /events HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
  const std::string head = socket.receive_text("\r\n\r\n");
  EXPECT_NE(head.find("Content-Encoding: gzip\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("Vary: Accept-Encoding\r\n"), std::string::npos) << head;
  Http2Client client(server->address());
  const std::int32_t id = client.begin("GET", "/events", accepts);
  std::string raw;
  std::string wanted;
  for (int i = 0; i < 3; ++i) {
    allowed = i + 1;
    wanted += event(i);
    const auto arrived = [&] {
      const std::optional<Unchunked> body = unchunked(raw);
      return body && inflated(body->body) == wanted;
    };
    while (!arrived()) {
      const auto one = socket.receive(1);
      ASSERT_TRUE(one) << "the event has not arrived";
      raw += as_text(*one);
    }
    EXPECT_TRUE(client.until([&] { return inflated(client.responses[id].body) == wanted; }));
    EXPECT_TRUE(client.responses[id].has("content-encoding", "gzip"));
    EXPECT_TRUE(i == 2 || !client.responses[id].ended);
  }
  raw += socket.receive_text("0\r\n\r\n");
  EXPECT_EQ(unpacked(unchunked(raw).value_or(Unchunked()).body), wanted);
  EXPECT_TRUE(client.until([&] { return client.responses[id].closed; }));
  EXPECT_EQ(client.responses[id].code, 0U);
  EXPECT_EQ(unpacked(client.responses[id].body), wanted);
  // The connection serves the next request.
  socket.send(as_bytes("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(socket.receive_all().starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpGzipStreams, SeveralCoroutinesMayWrite) {
  options.send_backlog_bytes_max = 10'000;  // They wait for the client.
  start();
  Http2Client client(server->address());
  const auto whole = [](const std::string& text) {
    if (text.size() != 20 * part_of_two) return false;
    std::size_t seen = 0;
    for (std::size_t at = 0; at < text.size(); at += part_of_two) {
      const std::string_view part = std::string_view(text).substr(at, part_of_two);
      const bool first = part.front() < 'n';
      seen += first ? 1 : 0;
      if (!std::ranges::all_of(part, [&](char c) { return (c < 'n') == first; })) return false;
    }
    return seen == 10;
  };
  EXPECT_TRUE(whole(unpacked(ask("/both").body.body)));
  EXPECT_TRUE(whole(ask("/both", "").body.body));
  EXPECT_TRUE(whole(unpacked(client.ask("GET", "/both", accepts).body)));
  EXPECT_TRUE(whole(client.ask("GET", "/both").body));
}

TEST_F(HttpGzipStreams, AllPartsSurvive) {
  start();
  Http2Client client(server->address());
  for (const auto& [bytes, part] :
       {std::pair(1, 1), std::pair(500, 1), std::pair(20'000, 100), std::pair(100'000, 16'384),
        std::pair(100'000, 16'385), std::pair(1'000'000, 1'000'000), std::pair(1'000'000, 100'000), std::pair(0, 1)}) {
    const std::string text = numbers(static_cast<std::size_t>(bytes));
    const std::string path = "/sent?" + std::to_string(bytes) + "," + std::to_string(part);
    const Answer answer = ask(path);
    EXPECT_TRUE(answer.gzipped()) << path;
    EXPECT_TRUE(answer.body.ended) << path;
    EXPECT_TRUE(unpacked(answer.body.body) == text) << path;
    const Http2Client::Response response = client.ask("GET", path, accepts);
    EXPECT_TRUE(response.has("content-encoding", "gzip"));
    EXPECT_EQ(response.code, 0U);
    EXPECT_TRUE(unpacked(response.body) == text) << path;
    // Other clients of the same path.
    const Answer plain = ask(path, "");
    EXPECT_FALSE(plain.gzipped());
    EXPECT_TRUE(plain.has("Vary: Accept-Encoding\r\n"));
    EXPECT_TRUE(plain.body.body == text);
    EXPECT_TRUE(client.ask("GET", path).body == text);
  }
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(HttpGzipStreams, WithoutChunksTheConnectionEndsTheBody) {
  start();
  const Answer answer = ask("/sent?50000,1000", "Accept-Encoding: gzip\r\n", "GET", "1.0");
  EXPECT_TRUE(answer.gzipped());
  EXPECT_EQ(unpacked(answer.raw), numbers(50'000));
}

TEST_F(HttpGzipStreams, ResponsesThatStayAsTheyAre) {
  start();
  const std::string accepted = "Accept-Encoding: gzip\r\n";
  const std::string text = numbers(5000);
  for (const char* fields :
       {"X-Type: image/png\r\n", "X-Field: Content-Encoding=br\r\n", "X-Status: 206\r\n",
        "X-Field: Content-Range=bytes 0-4999/9999\r\n", "X-Field: Cache-Control=no-transform\r\n"}) {
    const Answer answer = ask("/sent?5000,1000", accepted + fields);
    EXPECT_FALSE(answer.gzipped()) << fields;
    EXPECT_EQ(answer.body.body, text) << fields;
  }
  EXPECT_FALSE(ask("/sent?5000,1000", "Accept-Encoding: gzip;q=0\r\n").gzipped());
  for (const char* status : {"204", "304"}) {
    const Answer answer = ask("/sent?5000,1000", accepted + "X-Status: " + status + "\r\n");
    EXPECT_FALSE(answer.gzipped()) << status;
    EXPECT_EQ(answer.raw, "") << status;
  }
  // HEAD has the fields of GET and no body.
  const Answer head = ask("/sent?5000,1000", accepted, "HEAD");
  EXPECT_TRUE(head.gzipped());
  EXPECT_EQ(head.raw, "");
  const Answer tagged = ask("/sent?5000,1000", accepted + "X-Field: ETag=\"one\"\r\n");
  EXPECT_TRUE(tagged.has("ETag: W/\"one\"\r\n")) << tagged.head;
}

TEST_F(HttpGzipStreams, CanBeSwitchedOff) {
  HttpOptions http_options;
  http_options.gzip = false;
  start(http_options);
  const Answer answer = ask("/sent?5000,1000");
  EXPECT_FALSE(answer.gzipped());
  EXPECT_FALSE(answer.has("Vary"));
}

// A response for which the memory of the compression can't be charged is sent as it is.
TEST_F(HttpGzipStreams, WithoutMemoryTheBodyIsNotCompressed) {
  options.message_bytes_max = 64 << 10;
  // Enough for about ten responses at the same time.
  options.receive_bytes_max = options.receive_share_bytes_max = options.receive_peer_bytes_max = 1 << 20;
  start();
  Http2Client client(server->address());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(client.begin("GET", "/events", accepts));
  const auto have_heads = [&] {
    return std::ranges::all_of(ids, [&](std::int32_t id) { return client.responses[id].status == 200; });
  };
  ASSERT_TRUE(client.until(have_heads));
  EXPECT_TRUE(client.responses[ids.front()].has("content-encoding", "gzip"));
  EXPECT_FALSE(client.responses[ids.back()].has("content-encoding", "gzip"));
  EXPECT_TRUE(client.responses[ids.back()].has("vary", "Accept-Encoding"));
  allowed = 3;
  const std::string wanted = event(0) + event(1) + event(2);
  for (const std::int32_t id : ids) {
    const Http2Client::Response& response = client.responses[id];
    EXPECT_TRUE(client.until([&] { return response.closed; }));
    EXPECT_EQ(response.has("content-encoding", "gzip") ? unpacked(response.body) : response.body, wanted);
  }
  EXPECT_TRUE(client.ask("GET", "/sent?5000,1000", accepts).has("content-encoding", "gzip"));
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(HttpGzipStreams, ABodyThatIsCutShortIsNotComplete) {
  start();
  // The head, and the part, may be lost with the connection.
  const Answer answer = ask("/cut");
  EXPECT_FALSE(answer.body.ended);
  EXPECT_EQ(unpacked(answer.body.body), "no gzip");
  Http2Client client(server->address());
  const Http2Client::Response response = client.ask("GET", "/cut", accepts);
  EXPECT_NE(response.code, 0U);
  EXPECT_EQ(unpacked(response.body), "no gzip");
}

TEST_F(HttpGzipStreams, ClientsThatGoAwayOrDoNotRead) {
  start();
  for (int i = 0; i < 20; ++i) {
    RawSocket socket = RawSocket::connected_to(server->address());
    const char* const path = i % 3 == 0 ? "/events" : "/endless";
    socket.send(as_bytes("GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
    if (i % 3 != 0) socket.receive(static_cast<std::size_t>(i * 37));
    Http2Client client(server->address());
    const std::int32_t id = client.begin("GET", path, accepts);
    if (i % 4 == 0) client.until([&] { return client.responses[id].status != 0; });
    if (i % 2 == 0) client.reset(id);
    socket.reset();
  }
  allowed = 3;
  EXPECT_TRUE(only_native_left());
}

TEST_F(HttpGzipStreams, CurlReadsThem) {
  if (output_of("command -v curl").empty()) GTEST_SKIP() << "curl is not installed";
  start();
  allowed = 3;
  const std::string url = "http://" + server->address();
  for (const char* version : {"--http1.1 ", "--http2-prior-knowledge ", "--http1.0 "}) {
    const std::string curl = "timeout 60 curl -sS --noproxy '*' " + std::string(version);
    EXPECT_EQ(output_of(curl + "--compressed " + url + "/events"), event(0) + event(1) + event(2));
    const std::string sum = output_of(curl + url + "/sent?500000,70000 | sha256sum");
    EXPECT_EQ(output_of(curl + "--compressed " + url + "/sent?500000,70000 | sha256sum"), sum) << version;
    EXPECT_EQ(output_of(curl + "-H 'Accept-Encoding: gzip' " + url + "/sent?500000,70000 | gzip -dc | sha256sum"), sum);
    EXPECT_LT(std::stoul(output_of(curl + "-H 'Accept-Encoding: gzip' " + url + "/sent?500000,70000 | wc -c")),
              350'000U);
  }
}

TEST_F(HttpGzipStreams, PythonReadsThem) {
  start();
  allowed = 3;
  const std::string script =
      "python3 -c '\n"
      "import gzip, http.client, sys\n"
      "c = http.client.HTTPConnection(sys.argv[1], timeout=60)\n"
      "for path in (\"/sent?300000,5000\", \"/events\", \"/sent?300000,300000\"):\n"
      "    c.request(\"GET\", path, headers={\"Accept-Encoding\": \"gzip\"})\n"
      "    r = c.getresponse()\n"
      "    print(r.getheader(\"Content-Encoding\"), len(gzip.GzipFile(fileobj=r).read()))\n"
      "' " +
      server->address();
  const std::string size = std::to_string(numbers(300'000).size());
  EXPECT_EQ(output_of(script),
            "gzip " + size + "\ngzip " + std::to_string(3 * event(0).size()) + "\ngzip " + size + "\n");
}

}  // namespace hawser::http_gzip_streams
