// Clients that end their direction of the connection behind their requests, over each protocol of a port:
// docs/decisions/0099-clients-that-end-their-direction.md. hawser-kv has its test of RESP.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "hawser/brpc.h"
#include "hawser/custom_protocol.h"
#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "tests/at_rest.h"
#include "tests/baidu_std/fixture.h"
#include "tests/http2_client.h"
#include "tests/raw_peer.h"

namespace hawser::half_closed_tests {

using namespace testing_tools;
namespace bd = protocol::baidu_std;
using bd::RawMessage;

std::atomic<int> held{0};
std::atomic<int> stopped{0};
std::atomic<bool> released{false};

RawMessage echo_at_once(const RawMessage& request) { return request; }
// Answers when the test releases it, or ends when it is cancelled.
Task<Result<RawMessage>> echo_when_released(Context& context, RawMessage request) {
  held.fetch_add(1);
  while (!released.load()) {
    const Result<void> slept = co_await context.loop().sleep(1ms, context.token());
    if (slept) continue;
    stopped.fetch_add(1);
    co_return std::unexpected(slept.error());
  }
  co_return request;
}
constexpr std::string_view at_once = "test.Raw/AtOnce";
constexpr std::string_view when_released = "test.Raw/WhenReleased";

// The texts of the replies that arrived before the end of the connection.
struct Received {
  std::multiset<std::string> texts;
  bool orderly = false;  // The server ended the connection without a reset.
};

// One connection of a client.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void request(std::string_view method, std::string_view text) = 0;
  // Ends the direction behind the requests.
  virtual void end_direction() = 0;
  virtual Received receive() = 0;
};

// Sends all requests with one call, just before the end.
class ByteConnection : public Connection {
 public:
  explicit ByteConnection(RawSocket socket) : socket_(std::move(socket)) {}
  void end_direction() override {
    socket_.send(std::exchange(requests_, {}));
    ::shutdown(socket_.fd(), SHUT_WR);
  }
  Received receive() override {
    Received received;
    receive_texts(received.texts);
    received.orderly = socket_.closed_without_reset();
    return received;
  }

 protected:
  virtual void receive_texts(std::multiset<std::string>& texts) = 0;
  // Adds what stands in brackets.
  void receive_bracketed(std::multiset<std::string>& texts) {
    for (;;) {
      const std::string text = socket_.receive_text("]");
      if (!text.ends_with(']')) return;
      const std::size_t begin = text.rfind('[') + 1;
      texts.insert(text.substr(begin, text.size() - begin - 1));
    }
  }

  RawSocket socket_;
  Octets requests_;
};

class NativeConnection final : public ByteConnection {
 public:
  explicit NativeConnection(const std::string& address) : ByteConnection(RawSocket::greeted(address)) {}
  void request(std::string_view method, std::string_view text) override {
    RawHeader header{.kind = wire::FrameKind::request, .call = 1U << 16 | slot_++};
    if (method == at_once) {
      header.method = detail::MethodFacts<echo_at_once>::id;
      header.signature = detail::MethodFacts<echo_at_once>::signature;
    } else {
      header.method = detail::MethodFacts<echo_when_released>::id;
      header.signature = detail::MethodFacts<echo_when_released>::signature;
    }
    requests_ = requests_ + message(header, text);
  }

 private:
  void receive_texts(std::multiset<std::string>& texts) override {
    while (const std::optional<RawFrame> frame = socket_.receive_frame(wire::FrameKind::response)) {
      texts.insert(frame->body + frame->payload);
    }
  }
  std::uint32_t slot_ = 0;
};

class Http1Connection final : public ByteConnection {
 public:
  explicit Http1Connection(const std::string& address) : ByteConnection(RawSocket::connected_to(address)) {}
  void request(std::string_view method, std::string_view text) override {
    requests_ = requests_ + octets("POST /" + std::string(method) +
                                   " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
                                   std::to_string(text.size() + 2) + "\r\n\r\n[" + std::string(text) + "]");
  }

 private:
  void receive_texts(std::multiset<std::string>& texts) override { receive_bracketed(texts); }
};

class BaiduStdConnection final : public ByteConnection {
 public:
  explicit BaiduStdConnection(const std::string& address) : ByteConnection(RawSocket::connected_to(address)) {}
  void request(std::string_view method, std::string_view text) override {
    requests_ =
        requests_ + bd::bytes_of({.method = method.substr(method.find('/') + 1), .id = ++last_id_, .data = text});
  }

 private:
  void receive_texts(std::multiset<std::string>& texts) override {
    while (const std::optional<bd::Answer> answer = bd::receive_answer(socket_)) {
      texts.insert(answer->error_code == 0 ? answer->data : answer->error_text);
    }
  }
  std::int64_t last_id_ = 0;
};

// A protocol of the program: a line is a request, which another protocol would not begin with.
class LineConnection final : public ByteConnection {
 public:
  explicit LineConnection(const std::string& address) : ByteConnection(RawSocket::connected_to(address)) {}
  void request(std::string_view method, std::string_view text) override {
    requests_ = requests_ + octets((method == at_once ? "@now " : "@wait ") + std::string(text) + "\n");
  }
  static Task<void> serve(ProtocolConnection& connection) {
    for (;;) {
      const Result<std::string> line = co_await connection.receive_until("\n", 100);
      if (!line) co_return;
      const RawMessage text{line->substr(line->find(' ') + 1)};
      Result<RawMessage> reply;
      if (line->starts_with("@now")) {
        reply = co_await connection.call<echo_at_once>(text);
      } else {
        reply = co_await connection.call<echo_when_released>(text);
      }
      if (!reply) co_return;
      const Result<void> sent = co_await connection.send("[" + reply->bytes + "]");
      if (!sent) co_return;
    }
  }

 private:
  void receive_texts(std::multiset<std::string>& texts) override { receive_bracketed(texts); }
};

class Http2Connection : public Connection {
 public:
  explicit Http2Connection(const std::string& address) : client_(address) {}
  void request(std::string_view method, std::string_view text) override {
    begin(method, {{"content-type", "application/json"}}, "[" + std::string(text) + "]");
  }
  void end_direction() override { ::shutdown(client_.socket().fd(), SHUT_WR); }
  Received receive() override {
    static_cast<void>(client_.until([] { return false; }));
    Received received;
    received.orderly = client_.ended;
    for (const auto& [id, response] : client_.responses) {
      if (response.ended && response.status == 200) received.texts.insert(text_of_body(response));
    }
    return received;
  }

 protected:
  void begin(std::string_view method, const Http2Client::Fields& fields, std::string body) {
    client_.begin("POST", "/" + std::string(method), fields, {std::move(body)});
  }

 private:
  virtual std::string text_of_body(const Http2Client::Response& response) const {
    return response.body.size() < 2 ? response.body : response.body.substr(1, response.body.size() - 2);
  }
  Http2Client client_;
};

class GrpcConnection final : public Http2Connection {
 public:
  using Http2Connection::Http2Connection;
  void request(std::string_view method, std::string_view text) override {
    const std::string prefix{'\0', '\0', '\0', '\0', static_cast<char>(text.size())};
    begin(method, {{"content-type", "application/grpc"}, {"te", "trailers"}}, prefix + std::string(text));
  }

 private:
  std::string text_of_body(const Http2Client::Response& response) const override {
    const auto status = response.fields.find("grpc-status");
    return status == response.fields.end() || status->second != "0" ? "failed" : response.body.substr(5);
  }
};

template <class C>
std::unique_ptr<Connection> make(const std::string& address) {
  return std::make_unique<C>(address);
}

struct Row {
  const char* protocol;
  std::unique_ptr<Connection> (*connect)(const std::string& address);
  // Calls that are not answered are cancelled.
  bool answers_finished_calls;
  bool answers_running_calls;
};
constexpr Row rows[] = {
    {"hawser", make<NativeConnection>, false, false},     {"http1", make<Http1Connection>, true, true},
    {"http2", make<Http2Connection>, true, true},         {"grpc", make<GrpcConnection>, true, true},
    {"baidu_std", make<BaiduStdConnection>, true, false}, {"custom", make<LineConnection>, true, true}};

class HalfClosed : public testing::TestWithParam<std::tuple<Row, PollerKind>> {
 protected:
  static constexpr int requests = 5;

  HalfClosed() {
    held = 0;
    stopped = 0;
    released = false;
    bd::serve_method<echo_at_once>(server, std::string(at_once));
    bd::serve_method<echo_when_released>(server, std::string(when_released));
    server.enable(http());
    server.enable(grpc());
    server.enable(baidu_std());
    server.enable(
        CustomProtocol{.name = "lines", .match = CustomProtocol::begins_with("@"), .serve = &LineConnection::serve});
  }
  ~HalfClosed() override {
    released = true;
    expect_rest(server);
  }
  void SetUp() override { ASSERT_TRUE(server.start()); }

  static const Row& row() { return std::get<0>(GetParam()); }
  std::unique_ptr<Connection> connected() const { return row().connect(server.address()); }
  static std::multiset<std::string> ask(Connection& connection, std::string_view method) {
    std::multiset<std::string> texts;
    for (int i = 0; i < requests; ++i) {
      texts.insert("text " + std::to_string(i));
      connection.request(method, "text " + std::to_string(i));
    }
    return texts;
  }

  Server server{{.listen = "127.0.0.1:0", .threads = 1, .loop = {.poller = std::get<1>(GetParam()), .log = no_log()}}};
};
INSTANTIATE_TEST_SUITE_P(Protocols, HalfClosed,
                         testing::Combine(testing::ValuesIn(rows),
                                          testing::Values(PollerKind::epoll, PollerKind::io_uring)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).protocol) +
                                  (std::get<1>(one.param) == PollerKind::epoll ? "_epoll" : "_io_uring");
                         });

// The requests and the end arrive together.
TEST_P(HalfClosed, RequestsThatArriveWithTheEnd) {
  const auto connection = connected();
  const auto texts = ask(*connection, at_once);
  connection->end_direction();
  const Received received = connection->receive();
  if (row().answers_finished_calls) {
    EXPECT_EQ(received.texts, texts);
  } else {
    EXPECT_TRUE(std::ranges::includes(texts, received.texts));
  }
  EXPECT_TRUE(received.orderly);
}

TEST_P(HalfClosed, RunningCalls) {
  const auto connection = connected();
  const auto texts = ask(*connection, when_released);
  connection->end_direction();
  if (row().answers_running_calls) {
    ASSERT_TRUE(soon([] { return held >= 1; }));
    // The end was there before this request, so that the loop has seen it.
    Http1Connection other(server.address());
    ask(other, at_once);
    other.end_direction();
    EXPECT_EQ(other.receive().texts.size(), std::size_t{requests});
    released = true;
  }
  const Received received = connection->receive();
  if (row().answers_running_calls) {
    EXPECT_EQ(received.texts, texts);
    EXPECT_EQ(stopped, 0);
  } else {
    EXPECT_TRUE(received.texts.empty());
    // The requests were read before the end, and began.
    EXPECT_TRUE(soon([] { return held == requests && stopped == requests; }));
  }
  EXPECT_TRUE(received.orderly);
}

}  // namespace hawser::half_closed_tests
