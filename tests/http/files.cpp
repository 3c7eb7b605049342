#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/http_files.h"
#include "hawser/server_metrics.h"
#include "tests/http_server_fixture.h"

// Files of a folder, and what clients and strangers ask of them.
namespace hawser::http_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Task<void> send_less(HttpBodyWriter& writer) { static_cast<void>(co_await writer.write(std::string(100'000, 'x'))); }
Task<void> send_more(HttpBodyWriter& writer) {
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(co_await writer.write("abc"));
  }
}
Task<void> send_nothing(HttpBodyWriter&) { co_return; }
HttpHandler announces(std::uint64_t bytes, Task<void> (*stream)(HttpBodyWriter&)) {
  return [bytes, stream](HttpRequest&) -> Task<HttpResponse> {
    HttpResponse response;
    response.stream_bytes = bytes;
    response.stream = stream;
    co_return response;
  };
}

class Files : public ServerFixture {
 protected:
  Files() {
    root = folder.path() / "root";
    std::filesystem::create_directories(root / "sub");
    std::ofstream(folder.path() / "secret") << "secret";
    std::ofstream(root / "a.txt") << "0123456789";
    std::ofstream(root / ".hidden") << "secret";
    std::ofstream(root / "empty.txt") << "";
    std::ofstream(root / "sub" / "index.html") << "<p>index";
    std::ofstream(root / "large.bin") << large_text;
    std::ofstream(root / "\u00fc b.txt") << "umlaut";
    std::filesystem::create_symlink("a.txt", root / "inside");
    std::filesystem::create_symlink("../secret", root / "outside");
    std::filesystem::create_symlink(folder.path() / "secret", root / "absolute");
    std::filesystem::create_symlink("..", root / "up");
    EXPECT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
    make_server();
    server->enable(add_routes(http({.encoded_slashes = true})
                                  .route("GET", "/files/*", HttpFiles(root.string()))
                                  .route("GET", "/less", announces(200'000, send_less))
                                  .route("GET", "/none", announces(0, send_nothing))
                                  .route("GET", "/more", announces(6, send_more))));
    start_server();
  }
  std::string ask(std::string_view path, std::string_view fields = "", std::string_view method = "GET",
                  std::string_view version = "1.1") {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(std::string(method) + " " + std::string(path) + " HTTP/" + std::string(version) +
                         "\r\nHost: a\r\nConnection: close\r\n" + std::string(fields) + "\r\n"));
    return socket.receive_all();
  }
  static std::string field(const std::string& answer, std::string_view name) {
    const std::size_t at = answer.find("\r\n" + std::string(name) + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 4;
    return answer.substr(begin, answer.find("\r\n", begin) - begin);
  }
  static std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

  TemporaryFolder folder;
  std::filesystem::path root;
  std::string large_text = [] {
    std::string text;
    for (int i = 0; text.size() < 1'000'000; ++i) text += std::to_string(i) + ",";
    return text;
  }();
};

TEST_F(Files, AreServedWithTheirLength) {
  const std::string answer = ask("/files/a.txt");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(answer, HasSubstr("Accept-Ranges: bytes\r\n"));
  EXPECT_EQ(body(answer), "0123456789");
  EXPECT_EQ(body(ask("/files/sub/index.html")), "<p>index");
  EXPECT_EQ(body(ask("/files/%C3%BC%20b.txt")), "umlaut");
  EXPECT_EQ(body(ask("/files/\u00fc%20b.txt")), "umlaut");
  EXPECT_EQ(body(ask("/files/inside")), "0123456789");
  const std::string large = ask("/files/large.bin");
  EXPECT_EQ(field(large, "Content-Length"), std::to_string(large_text.size()));
  EXPECT_EQ(field(large, "Transfer-Encoding"), "");
  EXPECT_TRUE(body(large) == large_text);
  EXPECT_TRUE(body(ask("/files/large.bin", "Accept-Encoding: gzip\r\n", "GET", "1.0")) == large_text);
  for (const char* const path : {"/files/a.txt", "/files/large.bin"}) {
    const std::string head = ask(path, "", "HEAD");
    EXPECT_EQ(field(head, "Content-Length"), field(ask(path), "Content-Length")) << path;
    EXPECT_EQ(body(head), "") << path;
  }
}

TEST_F(Files, NoNameLeadsOutOfTheFolder) {
  for (const char* const path :
       {"/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/sub/..%2f..%2fsecret",
        "/files/outside", "/files/absolute", "/files/up/secret", "/files/up%2fsecret", "/files/%2fetc%2fpasswd",
        "/files//etc/passwd", "/files/a.txt%00.html", "/files/.hidden", "/files/sub%2f.hidden", "/files/pipe",
        "/files/sub", "/files/none", "/files/a.txt/b", "/files/%", "/files/..%5csecret"}) {
    const std::string answer = ask(path);
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 4")) << path;
    EXPECT_THAT(answer, Not(HasSubstr("secret"))) << path;
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << path;
  }
  EXPECT_THAT(ask("/files/a.txt", "", "POST"), HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THROW(HttpFiles("/does/not/exist"), std::system_error);
}

TEST_F(Files, RangesAreParts) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"bytes=0-3", "0123", "bytes 0-3/10"},      {"bytes=4-", "456789", "bytes 4-9/10"},
      {"bytes=-3", "789", "bytes 7-9/10"},        {"bytes=0-99999999999999999999", "0123456789", "bytes 0-9/10"},
      {"bytes=9-9", "9", "bytes 9-9/10"},         {"bytes=8-10", "89", "bytes 8-9/10"},
      {"BYTES=-99", "0123456789", "bytes 0-9/10"}};
  for (const auto& [range, part, name] : cases) {
    const std::string answer = ask("/files/a.txt", "Range: " + range + "\r\n");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 206 Partial Content\r\n")) << range;
    EXPECT_EQ(field(answer, "Content-Range"), name) << range;
    EXPECT_EQ(field(answer, "Content-Length"), std::to_string(part.size())) << range;
    EXPECT_EQ(body(answer), part) << range;
  }
  for (const char* const range : {"bytes=10-", "bytes=10-12", "bytes=-0", "bytes=99999999999999999999-"}) {
    const std::string answer = ask("/files/a.txt", "Range: " + std::string(range) + "\r\n");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 416 Range Not Satisfiable\r\n")) << range;
    EXPECT_EQ(field(answer, "Content-Range"), "bytes */10") << range;
  }
  for (const char* const range :
       {"bytes=3-1", "bytes=", "bytes=a-b", "bytes=0-1,3-4", "lines=0-1", "bytes", "bytes=--1"}) {
    const std::string answer = ask("/files/a.txt", "Range: " + std::string(range) + "\r\n");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200")) << range;
    EXPECT_EQ(body(answer), "0123456789") << range;
  }
  // Clients that go on with a download, and players, ask for a range without knowing the length.
  for (const char* const range : {"bytes=0-", "bytes=-1", "bytes=0-0"}) {
    const std::string answer = ask("/files/empty.txt", "Range: " + std::string(range) + "\r\n");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200 OK\r\n")) << range;
    EXPECT_EQ(field(answer, "Content-Length"), "0") << range;
  }
  const std::string large = ask("/files/large.bin", "Range: bytes=100000-799999\r\n");
  EXPECT_EQ(field(large, "Content-Length"), "700000");
  EXPECT_TRUE(body(large) == large_text.substr(100'000, 700'000));
  EXPECT_THAT(ask("/files/a.txt", "Range: bytes=0-3\r\n", "HEAD"), HasSubstr("HTTP/1.1 200"));
}

TEST_F(Files, ConditionsAreEvaluatedInTheirOrder) {
  const std::string first = ask("/files/a.txt");
  const std::string tag = field(first, "ETag");
  const std::string date = field(first, "Last-Modified");
  ASSERT_NE(tag, "");
  const auto status = [&](const std::string& fields) { return ask("/files/a.txt", fields).substr(9, 3); };
  EXPECT_EQ(status("If-None-Match: " + tag + "\r\n"), "304");
  EXPECT_EQ(status("If-None-Match: \"x\", W/" + tag + "\r\n"), "304");
  EXPECT_EQ(status("If-None-Match: \"x\"\r\nIf-None-Match: " + tag + "\r\n"), "304");
  EXPECT_EQ(status("If-None-Match: *\r\n"), "304");
  EXPECT_EQ(status("If-None-Match: \"x\"\r\n"), "200");
  EXPECT_EQ(status("If-None-Match: " + tag.substr(1, tag.size() - 2) + "\r\n"), "200");
  EXPECT_EQ(status("If-Modified-Since: " + date + "\r\n"), "304");
  EXPECT_EQ(status("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "200");
  EXPECT_EQ(status("If-Modified-Since: yesterday\r\n"), "200");
  EXPECT_EQ(status("If-Modified-Since: Sun, 99 Nov 1994 08:49:37 GMT\r\n"), "200");
  EXPECT_EQ(status("If-None-Match: \"x\"\r\nIf-Modified-Since: " + date + "\r\n"), "200");
  EXPECT_EQ(status("If-Match: \"x\"\r\n"), "412");
  EXPECT_EQ(status("If-Match: W/" + tag + "\r\n"), "412");
  EXPECT_EQ(status("If-Match: " + tag + "\r\n"), "200");
  EXPECT_EQ(status("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "412");
  EXPECT_EQ(status("Range: bytes=0-1\r\nIf-Range: " + tag + "\r\n"), "206");
  EXPECT_EQ(status("Range: bytes=0-1\r\nIf-Range: " + date + "\r\n"), "206");
  EXPECT_EQ(status("Range: bytes=0-1\r\nIf-Range: \"x\"\r\n"), "200");
  EXPECT_EQ(status("Range: bytes=0-1\r\nIf-Range: W/" + tag + "\r\n"), "200");
  const std::string unchanged = ask("/files/a.txt", "If-None-Match: " + tag + "\r\n");
  EXPECT_EQ(field(unchanged, "ETag"), tag);
  EXPECT_EQ(body(unchanged), "");
  std::ofstream(root / "a.txt", std::ios::app) << "x";
  EXPECT_EQ(status("If-None-Match: " + tag + "\r\n"), "200");
}

// A part of the file can be read again, so a client that does not read holds few of them.
TEST_F(Files, SlowReadersHoldFewParts) {
  constexpr std::size_t bytes = 24 << 20;  // More than the buffers of the kernel.
  std::ofstream(root / "huge.bin").flush();
  std::filesystem::resize_file(root / "huge.bin", bytes);
  MetricRegistry registry;
  const std::shared_ptr<void> metrics = collect_metrics(registry, *server);
  const auto unsent = [&] {
    double sum = 0;
    const std::string text = registry.render(MetricFormat::prometheus);
    const std::string name = "\nhawser_loop_unsent_bytes{";
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      sum += std::stod(text.substr(text.find(' ', at)));
    }
    return static_cast<std::size_t>(sum);
  };
  constexpr std::size_t readers = 4;
  constexpr std::size_t each_max = 448 * 1024;
  std::vector<RawSocket> sockets;
  for (std::size_t i = 0; i < readers; ++i) {
    sockets.push_back(RawSocket::connected_to(server->address()));
    sockets.back().send(as_bytes("GET /files/huge.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  }
  EXPECT_TRUE(soon([&] { return unsent() >= readers * 64 * 1024; }));
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(native->sees_calls(1));
    EXPECT_LE(unsent(), readers * each_max);
  }
  // They go on when they read.
  const std::string head = sockets[0].receive_text("\r\n\r\n");
  EXPECT_EQ(field(head, "Content-Length"), std::to_string(bytes));
  EXPECT_TRUE(sockets[0].receive(bytes));
}

TEST_F(Files, ALengthThatIsAnnouncedHolds) {
  // The client must see that the body is not complete.
  const std::string less = ask("/less");
  EXPECT_EQ(field(less, "Content-Length"), "200000");
  EXPECT_EQ(body(less).size(), 100'000U) << "the stream ends in the tick of its begin";
  EXPECT_THAT(ask("/none"), HasSubstr("Content-Length: 0\r\n"));
  const std::string more = ask("/more");
  EXPECT_EQ(field(more, "Content-Length"), "6");
  EXPECT_EQ(body(more), "abcabc");
}

TEST(PercentDecoding, DecodesOnce) {
  EXPECT_EQ(percent_decoded("a%20b+c%252F%00").value_or(""), std::string("a b+c%2F\0", 9));
  EXPECT_EQ(percent_decoded("").value_or("x"), "");
  for (const char* const wrong : {"%", "%1", "%g0", "%0g", "a%%20"}) EXPECT_FALSE(percent_decoded(wrong)) << wrong;
  EXPECT_EQ(query_value("a=1&b=x+y%26z&b=2&c", "b").value_or(""), "x y&z");
  EXPECT_EQ(query_value("a=1&%62=2", "b").value_or(""), "2");
  EXPECT_EQ(query_value("a=1&c", "c").value_or("none"), "");
  EXPECT_FALSE(query_value("a=1&bb=2", "b"));
  EXPECT_FALSE(query_value("a=%zz", "a"));
}

}  // namespace
}  // namespace hawser::http_test
