#include "protocol/http/gzip.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"
#include "tests/output_of.h"

// Content-Encoding over HTTP/1.1 and HTTP/2.
namespace hawser::http_gzip {

using namespace http_test;

Task<HttpResponse> sized(HttpRequest& request) {
  HttpResponse response;
  response.body.assign(std::stoul("0" + std::string(request.query())), 'x');
  if (const auto type = request.header("x-type")) response.content_type = std::string(*type);
  if (const auto tag = request.header("x-tag")) response.headers.emplace_back("ETag", std::string(*tag));
  if (const auto control = request.header("x-control")) {
    response.headers.emplace_back("Cache-Control", std::string(*control));
  }
  co_return response;
}
// Answers with the length and the coding of the body that it received.
Task<HttpResponse> measured(HttpRequest& request) {
  HttpResponse response;
  response.body = std::to_string(request.body().size()) + " " +
                  std::string(request.header("content-encoding").value_or("none")) + " " +
                  std::string(request.header("content-length").value_or("none"));
  co_return response;
}

class HttpGzipServer : public ServerFixture {
 protected:
  void SetUp() override {
    if (!protocol::http::can_gzip()) GTEST_SKIP() << "built without zlib";
  }
  void start(HttpOptions http_options = {}) {
    make_server();
    server->enable(grpc());
    server->enable(add_routes(http(http_options).route("GET", "/sized", sized).route("POST", "/measured", measured)));
    start_server();
  }
  struct Answer {
    int status = 0;
    std::string head;
    std::string body;
    bool gzipped() const { return head.find("Content-Encoding: gzip\r\n") != std::string::npos; }
    bool has(std::string_view text) const { return head.find(text) != std::string::npos; }
  };
  // Over HTTP/1.1.
  Answer ask(const std::string& method, const std::string& path, const std::string& fields,
             const std::string& body = {}) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + fields +
                         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" +
                         body));
    const std::string all = socket.receive_all();
    const std::size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    return {std::stoi(all.substr(9, 3)), all.substr(0, end + 2), all.substr(end + 4)};
  }
  static std::string packed(std::string_view text) { return protocol::http::gzip(as_bytes(text)).value_or(""); }
  static std::string unpacked(std::string_view bytes) {
    const Result<Buffer> text = protocol::http::gunzip(as_bytes(bytes), 16 << 20);
    return text ? std::string(text->text()) : "no gzip";
  }
  const std::string accepts = "Accept-Encoding: deflate, gzip\r\n";
};

TEST_F(HttpGzipServer, ResponsesOfRoutesAreCompressed) {
  start();
  Http2Client client(server->address());
  for (const std::size_t size : {1024U, 10'000U, 1'000'000U}) {
    const std::string path = "/sized?" + std::to_string(size);
    const Answer answer = ask("GET", path, accepts);
    EXPECT_TRUE(answer.gzipped()) << size;
    EXPECT_TRUE(answer.has("Vary: Accept-Encoding\r\n"));
    EXPECT_TRUE(answer.has("Content-Length: " + std::to_string(answer.body.size()) + "\r\n"));
    EXPECT_EQ(unpacked(answer.body), std::string(size, 'x'));
    const Http2Client::Response response = client.ask("GET", path, {{"accept-encoding", "gzip"}});
    EXPECT_TRUE(response.has("content-encoding", "gzip"));
    EXPECT_TRUE(response.has("vary", "Accept-Encoding"));
    EXPECT_EQ(unpacked(response.body), std::string(size, 'x'));
    // Another client of the same path.
    const Answer plain = ask("GET", path, "");
    EXPECT_EQ(plain.body.size(), size);
    EXPECT_TRUE(plain.has("Vary: Accept-Encoding\r\n"));
    EXPECT_EQ(client.ask("GET", path).body.size(), size);
    const Answer head = ask("HEAD", path, accepts);
    EXPECT_TRUE(head.has("Content-Length: " + std::to_string(answer.body.size()) + "\r\n")) << head.head;
    EXPECT_EQ(head.body, "");
  }
}

TEST_F(HttpGzipServer, ResponsesThatStayAsTheyAre) {
  start();
  EXPECT_FALSE(ask("GET", "/sized?1023", accepts).gzipped());
  EXPECT_FALSE(ask("GET", "/sized?5000", "Accept-Encoding: gzip;q=0\r\n").gzipped());
  EXPECT_FALSE(ask("GET", "/sized?5000", accepts + "X-Type: image/png\r\n").gzipped());
  EXPECT_FALSE(ask("GET", "/sized?5000", accepts + "X-Control: public, no-transform\r\n").gzipped());
  EXPECT_EQ(ask("GET", "/empty", accepts).status, 204);
  const Answer tagged = ask("GET", "/sized?5000", accepts + "X-Tag: \"one\"\r\n");
  EXPECT_TRUE(tagged.gzipped());
  EXPECT_TRUE(tagged.has("ETag: W/\"one\"\r\n")) << tagged.head;
}

TEST_F(HttpGzipServer, CompressionCanBeSwitchedOff) {
  HttpOptions http_options;
  http_options.gzip = false;
  start(http_options);
  EXPECT_FALSE(ask("GET", "/sized?5000", accepts).gzipped());
  EXPECT_EQ(ask("POST", "/test.Text/Say", "Content-Encoding: gzip\r\n", packed(std::string(100, 'x'))).status, 415);
  // A handler can decode it itself.
  const std::string body = packed(std::string(1000, 'x'));
  EXPECT_EQ(ask("POST", "/measured", "Content-Encoding: gzip\r\n", body).body,
            std::to_string(body.size()) + " gzip " + std::to_string(body.size()));
}

TEST_F(HttpGzipServer, JsonIsCompressed) {
  start();
  Http2Client client(server->address());
  EXPECT_FALSE(ask("POST", "/test.Text/Say", accepts, "\"short\"").gzipped());
  for (const std::size_t size : {5'000U, 100'000U}) {  // The longer one is converted on another thread.
    const std::string text = "\"" + std::string(size, 'x') + "\"";
    for (const char* path : {"/test.Text/Say", "/test.Text/Later"}) {
      const Answer answer = ask("POST", path, accepts, text);
      EXPECT_TRUE(answer.gzipped()) << path;
      EXPECT_EQ(unpacked(answer.body), text);
      const Http2Client::Response response = client.post(path, text, {{"accept-encoding", "gzip"}});
      EXPECT_TRUE(response.has("content-encoding", "gzip"));
      EXPECT_EQ(unpacked(response.body), text);
      EXPECT_EQ(client.post(path, text).body, text);
    }
  }
}

TEST_F(HttpGzipServer, RequestsAreDecompressed) {
  start();
  Http2Client client(server->address());
  for (const std::size_t size : {100U, 5'000U, 100'000U, 1'000'000U}) {
    const std::string text = "\"" + std::string(size, 'x') + "\"";
    EXPECT_EQ(ask("POST", "/test.Text/Say", "Content-Encoding: gzip\r\n", packed(text)).body, text);
    EXPECT_EQ(client.post("/test.Text/Later", packed(text), {{"content-encoding", "x-gzip"}}).body, text);
    const std::string length = std::to_string(text.size());
    EXPECT_EQ(ask("POST", "/measured", "Content-Encoding: GZIP\r\n", packed(text)).body, length + " none none");
    EXPECT_EQ(client.post("/measured", packed(text), {{"content-encoding", "gzip"}}).body, length + " none none");
  }
  EXPECT_EQ(ask("POST", "/measured", "Content-Encoding: gzip\r\n").body, "0 none none");
  EXPECT_EQ(ask("POST", "/measured", "Content-Encoding: br\r\n", "abc").body, "3 br 3");
  EXPECT_EQ(ask("POST", "/test.Text/Say", "Content-Encoding: br\r\n", "abc").status, 415);
  EXPECT_EQ(ask("POST", "/test.Text/Say", "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", "abc").status, 415);
  EXPECT_EQ(client.post("/test.Text/Say", "abc", {{"content-encoding", "br"}}).status, 415);
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

// A small body that would become a very large one, and bodies that lie about their length.
TEST_F(HttpGzipServer, BombsAreRefused) {
  start();  // message_bytes_max is 1 MiB.
  Http2Client client(server->address());
  const std::string bomb = packed(std::string(64 << 20, '\0'));
  ASSERT_LT(bomb.size(), options.message_bytes_max);
  std::string liar = bomb;  // States that it is short.
  liar[liar.size() - 4] = 100;
  liar[liar.size() - 3] = liar[liar.size() - 2] = liar[liar.size() - 1] = 0;
  std::string braggart = packed("\"" + std::string(1000, 'x') + "\"");  // States that it is long.
  braggart[braggart.size() - 2] = 8;
  const std::string over = packed(std::string((1 << 20) + 1, 'x'));
  for (int i = 0; i < 20; ++i) {
    for (const auto& [body, status] : {std::pair(bomb, 413), std::pair(over, 413), std::pair(liar, 400),
                                       std::pair(braggart, 400), std::pair(std::string(100, 'x'), 413)}) {
      for (const char* path : {"/test.Text/Say", "/measured"}) {
        EXPECT_EQ(ask("POST", path, "Content-Encoding: gzip\r\n", body).status, status) << path << " " << body.size();
        EXPECT_EQ(client.post(path, body, {{"content-encoding", "gzip"}}).status, status) << path << " " << body.size();
      }
    }
  }
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(HttpGzipServer, ClientsThatGoAwayWhileTheirBodyIsDecompressed) {
  start();
  const std::string body = packed("\"" + std::string(1'000'000, 'x') + "\"");
  const std::string request =
      "POST /test.Text/Later HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  for (int i = 0; i < 30; ++i) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(request));
    Http2Client client(server->address());
    const std::int32_t id = client.begin("POST", "/test.Text/Later", {{"content-encoding", "gzip"}}, {body});
    if (i % 2 == 0) client.reset(id);
    socket.reset();
  }
  EXPECT_TRUE(only_native_left());
}

TEST_F(HttpGzipServer, CurlIsServedCompressed) {
  if (output_of("command -v curl").empty()) GTEST_SKIP() << "curl is not installed";
  start();
  const std::string url = "http://" + server->address();
  for (const char* version : {"--http1.1 ", "--http2-prior-knowledge "}) {
    const std::string curl = "timeout 60 curl -sS --noproxy '*' " + std::string(version);
    const std::string heads = output_of(curl + "--compressed -D - -o /dev/null " + url + "/sized?100000 | tr A-Z a-z");
    EXPECT_NE(heads.find("content-encoding: gzip"), std::string::npos) << heads;
    EXPECT_EQ(output_of(curl + "--compressed " + url + "/sized?100000 | wc -c"), "100000\n");
    EXPECT_EQ(output_of(curl + url + "/sized?100000 | wc -c"), "100000\n");
    EXPECT_EQ(output_of("head -c 200000 /dev/zero | gzip | " + curl + "--data-binary @- -H 'Content-Encoding: gzip' " +
                        url + "/measured"),
              "200000 none none");
  }
}

}  // namespace hawser::http_gzip
