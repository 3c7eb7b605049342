#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "hawser/interceptor.h"
#include "hawser/metrics.h"
#include "hawser/scope.h"
#include "hawser/server_metrics.h"
#include "protocol/http/gzip.h"
#include "rpc/port/body_form.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"
#include "tests/skipped_calls.h"

// JSON is converted behind the interceptors, over HTTP/1.1 and HTTP/2.
namespace hawser::http_json_order {

using namespace http_test;

std::atomic<int> conversions{0};
std::atomic<bool> gate_closed{false};
std::atomic<int> results{0};  // Conversions of results that have waited at their gate.
std::atomic<bool> result_gate_closed{false};

// Counts conversions of arguments. They wait while the gate is closed.
class CountedTranscoder final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override {
    conversions.fetch_add(1);
    gate_closed.wait(true);
    return text_.arguments_from_json(json);
  }
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    if (result_gate_closed) results.fetch_add(1);
    result_gate_closed.wait(true);
    return text_.result_to_json(body, payload);
  }
  std::string_view encoding() const noexcept override { return text_.encoding(); }

 private:
  TextTranscoder text_;
};

void open_gate() {
  gate_closed = result_gate_closed = false;
  gate_closed.notify_all();
  result_gate_closed.notify_all();
}

struct Answer {
  int status = 0;
  std::string body;
};

// Lines of an interceptor about calls over HTTP: "BYTES BYTES OUTCOME", with request_bytes() before and after next().
class Seen {
 public:
  void add(std::string line) {
    const std::lock_guard guard(lock_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> take() {
    const std::lock_guard guard(lock_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex lock_;
  std::vector<std::string> lines_;
};

class HttpJsonOrder : public ServerFixture, public ::testing::WithParamInterface<bool> {
 protected:
  HttpJsonOrder() {
    conversions = results = 0;
    gate_closed = result_gate_closed = false;
  }
  ~HttpJsonOrder() override { open_gate(); }

  template <auto F>
  void add_counted(std::uint32_t id, std::string name) {
    server->add_method({.id = id,
                        .signature = detail::MethodFacts<F>::signature,
                        .name = std::move(name),
                        .handler = std::make_unique<detail::FunctionHandler<F, void>>(nullptr, HandlerOptions{}),
                        .json = std::make_shared<CountedTranscoder>()});
  }
  void start() {
    add_counted<say>(7, "test.Text/Counted");
    add_counted<say_later>(8, "test.Text/CountedLater");
    server->enable(grpc());
    server->enable(add_routes(http()));
    start_server();
  }
  // Calls without the token are refused.
  void use_token() {
    server->use([this](IncomingCall& call, Next next) -> Task<Result<void>> {
      const bool over_http = call.protocol() == "http";
      if (over_http && !call.metadata().find("x-token")) co_return fail(ErrorCode::unauthenticated, "send a token");
      const std::size_t before = call.request_bytes();
      const Result<void> outcome = co_await next();
      if (over_http) {
        seen.add(std::to_string(before) + " " + std::to_string(call.request_bytes()) + " " +
                 (outcome ? "ok" : outcome.error().text));
      }
      co_return outcome;
    });
  }
  Answer post(const std::string& body, bool with_token, const std::string& path = "/test.Text/Counted",
              bool compressed = false) const {
    if (GetParam()) {
      Http2Client client(server->address());
      Http2Client::Fields fields;
      if (with_token) fields.emplace_back("x-token", "yes");
      if (compressed) fields.emplace_back("content-encoding", "gzip");
      const Http2Client::Response response = client.post(path, body, fields);
      return {static_cast<int>(response.status), response.body};
    }
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("POST " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" +
                         (with_token ? "X-Token: yes\r\n" : "") + (compressed ? "Content-Encoding: gzip\r\n" : "") +
                         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body));
    const std::string all = socket.receive_all();
    const std::size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    return {std::stoi(all.substr(9, 3)), all.substr(end + 4)};
  }
  // True if the metrics have this line.
  bool counts(const std::string& line) const {
    return ("\n" + registry.render(MetricFormat::prometheus)).contains("\n" + line + "\n");
  }

  MetricRegistry registry;
  Seen seen;
};

// A peer of HTTP/1.1 does not read.
class HttpJsonStop : public HttpJsonOrder {};

const std::string malformed(1'000'000, 'x');

TEST_P(HttpJsonOrder, RefusedCallsAreNotConverted) {
  make_server();
  use_token();
  start();
  for (const std::string& body : {malformed, std::string("malformed"), std::string("\"good\"")}) {
    EXPECT_EQ(post(body, false).status, 401) << body.size();
  }
  EXPECT_EQ(conversions, 0);
  EXPECT_TRUE(only_native_left());
}

TEST_P(HttpJsonOrder, AcceptedCallsAreConverted) {
  make_server();
  use_token();
  start();
  for (const char* path : {"/test.Text/Counted", "/test.Text/CountedLater"}) {
    for (const std::size_t bytes : {std::size_t{5}, std::size_t{5'000}, std::size_t{500'000}}) {
      conversions = 0;
      const std::string json = "\"" + std::string(bytes, 'y') + "\"";
      const Answer answer = post(json, true, path);
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.body, json);
      EXPECT_EQ(conversions, 1);
      EXPECT_EQ(seen.take(),
                std::vector<std::string>({std::to_string(json.size()) + " " +
                                          std::to_string(text_body(std::string(bytes, 'y')).size()) + " ok"}));
    }
  }
  EXPECT_TRUE(only_native_left());
}

TEST_P(HttpJsonOrder, AnErrorOfTheConversionIsTheOutcome) {
  make_server();
  use_token();
  start();
  const std::string wrong = "{\"code\":\"invalid_argument\",\"message\":\"the JSON is not a text\"}\n";
  for (const std::string& body : {malformed, std::string("malformed")}) {
    const Answer answer = post(body, true);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.body, wrong);
    const std::string bytes = std::to_string(body.size());
    EXPECT_EQ(seen.take(), std::vector<std::string>({bytes + " " + bytes + " the JSON is not a text"}));
  }
  EXPECT_EQ(conversions, 2);
  EXPECT_TRUE(only_native_left());
}

TEST_P(HttpJsonOrder, WithoutInterceptors) {
  make_server();
  start();
  const std::shared_ptr<void> registration = collect_metrics(registry, *server);
  const std::string text(500'000, 'y');
  EXPECT_EQ(post("\"" + text + "\"", false).body, "\"" + text + "\"");
  EXPECT_EQ(post("\"" + text + "\"", false, "/test.Text/CountedLater").body, "\"" + text + "\"");
  for (const std::string& body : {malformed, std::string("malformed")}) {
    const Answer answer = post(body, false);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.body, "{\"code\":\"invalid_argument\",\"message\":\"the JSON is not a text\"}\n");
  }
  EXPECT_EQ(post("\"fail\"", false, "/test.Text/CountedLater").status, 500);
  EXPECT_TRUE(only_native_left());
  // A conversion that fails is a call that fails.
  const std::string labels = "{method=\"test.Text/Counted\"";
  EXPECT_TRUE(counts("hawser_server_method_calls_total" + labels + ",code=\"ok\"} 1"));
  EXPECT_TRUE(counts("hawser_server_method_calls_total" + labels + ",code=\"invalid_argument\"} 2"));
  EXPECT_TRUE(
      counts("hawser_server_method_request_bytes_total" + labels + "} " + std::to_string(text_body(text).size())));
}

TEST_P(HttpJsonOrder, InterceptorsThatSkipTheCallAreNotified) {
  make_server();
  const SkipsAll skips;
  server->use(skips);
  start();
  using Lines = std::vector<std::string>;
  const auto lines = [&](std::size_t number) {
    EXPECT_TRUE(soon([&] { return skips.listed() >= number; }));
    return skips.take("http");
  };
  EXPECT_EQ(post("malformed", false).status, 400);
  EXPECT_EQ(lines(1), Lines({"http test.Text/Counted: the JSON is not a text"}));
  EXPECT_EQ(post(malformed, false).status, 400);
  EXPECT_EQ(lines(1), Lines({"http test.Text/Counted: the JSON is not a text"}));
  // A conversion on another thread that lasts longer than a tick: a call that sleeps begins and ends meanwhile.
  const std::string text(500'000, 'y');
  gate_closed = true;
  Answer answer;
  std::jthread client([&] { answer = post("\"" + text + "\"", false); });
  EXPECT_TRUE(soon([&] { return conversions == 3; }));
  EXPECT_EQ(post("\"a\"", false, "/test.Text/Later").status, 200);
  open_gate();
  client.join();
  EXPECT_EQ(answer.body, "\"" + text + "\"");
  EXPECT_EQ(lines(2), Lines({"http test.Text/Later: result of " + std::to_string(text_body("a").size()),
                             "http test.Text/Counted: result of " + std::to_string(text_body(text).size())}));
  EXPECT_EQ(post("\"short\"", false).body, "\"short\"");
  EXPECT_EQ(skips.take("http"), Lines());
  EXPECT_EQ(conversions, 4);
  EXPECT_TRUE(only_native_left());
}

TEST_P(HttpJsonOrder, AConversionCountsAsACallInFlight) {
  make_server();
  start();
  without_native();
  gate_closed = true;
  Answer answer;
  const std::string json = "\"" + std::string(100'000, 'y') + "\"";
  std::jthread client([&] { answer = post(json, false); });
  EXPECT_TRUE(soon([&] { return conversions == 1; }));
  EXPECT_EQ(server->counters().calls_in_flight, 1U);
  open_gate();
  client.join();
  EXPECT_EQ(answer.body, json);
  EXPECT_TRUE(soon([&] { return at_rest(*server); }));
}

// The JSON is being converted when the interceptor returns.
TEST_P(HttpJsonOrder, AnInterceptorMayEndACallDuringTheConversion) {
  make_server();
  server->use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (call.protocol() == "http") {
      Scope scope;
      scope.spawn([](Next rest) -> Task<void> {
        static_cast<void>(co_await rest());
        ADD_FAILURE() << "the task was not destroyed";
      }(next));
      while (conversions == 0) {
        co_await call.loop().sleep(1ms);
      }
      co_return fail(ErrorCode::permission_denied, "no more patience");
    }
    co_return co_await next();
  });
  start();
  gate_closed = true;
  const std::string json = "\"" + std::string(100'000, 'y') + "\"";
  EXPECT_EQ(post(json, false).status, 403);
  open_gate();
  EXPECT_TRUE(only_native_left());
}

// A task of next() outlives its call, whose JSON is being converted. It ends with the call, and the thread goes on.
TEST_P(HttpJsonOrder, ATaskOfNextEndsWithItsCallDuringTheConversion) {
  make_server();
  const auto scope = std::make_shared<std::unique_ptr<Scope>>();
  std::atomic<bool> ended{false};
  server->use([scope, &ended](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (call.protocol() == "http") {
      *scope = std::make_unique<Scope>();
      (*scope)->spawn([](Next rest, std::atomic<bool>& done) -> Task<void> {
        const Result<void> outcome = co_await rest();
        EXPECT_FALSE(outcome);
        if (!outcome) {
          EXPECT_EQ(outcome.error().text, "the call ended before its handler did");
        }
        done = true;
      }(next, ended));
      while (conversions == 0) {
        co_await call.loop().sleep(1ms);
      }
      co_return fail(ErrorCode::permission_denied, "no more patience");
    }
    co_return co_await next();
  });
  start();
  gate_closed = true;
  const std::string json = "\"" + std::string(100'000, 'y') + "\"";
  EXPECT_EQ(post(json, false).status, 403);
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
  EXPECT_TRUE(soon([&] { return ended.load(); }));
  open_gate();
  EXPECT_TRUE(only_native_left());
}

// The handler of a route uses the request, which ends with the call.
TEST_P(HttpJsonOrder, ATaskOfNextThatOutlivesItsCallEndsTheHandlerOfItsRoute) {
  make_server();
  const auto scope = std::make_shared<Scope>();
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  server->use([scope, &begun](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (call.protocol() != "http") co_return co_await next();
    scope->spawn([](Next rest) -> Task<void> {
      const Result<void> outcome = co_await rest();
      EXPECT_FALSE(outcome);
    }(next));
    while (begun == 0) {
      co_await call.loop().sleep(1ms);
    }
    co_return fail(ErrorCode::permission_denied, "no more patience");
  });
  server->enable(
      add_routes(http()).route("POST", "/slow", [&begun, &ended](HttpRequest& request) -> Task<HttpResponse> {
        struct End {
          ~End() { ++count; }
          std::atomic<int>& count;
        };
        const End end{ended};
        ++begun;
        co_await request.loop().sleep(1h);
        HttpResponse response;
        response.body = std::string(request.path());
        co_return response;
      }));
  server->enable(grpc());
  start_server();
  EXPECT_EQ(post("a", false, "/slow").status, 403);
  EXPECT_EQ(begun, 1);
  EXPECT_TRUE(soon([&] { return ended == 1; })) << "the handler waits for an hour, and its request has ended";
  EXPECT_TRUE(only_native_left());
}

// Its reply has an attachment on loan.
void attach(Context& context, std::string_view) { context.set_attachment(Buffer::copy_of(std::string(32 << 20, 'a'))); }

// The call waits for its reply to be sent when its coroutine is destroyed.
TEST_P(HttpJsonStop, AServerMayStopWhileAReplyIsUnread) {
  for (const bool guarded : {false, true}) {
    make_server();
    if (guarded) use_token();
    add_counted<attach>(9, "test.Text/Attach");
    start();
    const std::string json = "\"" + std::string(100'000, 'y') + "\"";
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("POST /test.Text/Attach HTTP/1.1\r\nHost: a\r\nX-Token: yes\r\nContent-Length: " +
                         std::to_string(json.size()) + "\r\n\r\n" + json));
    pollfd readable{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&readable, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(patience).count())),
              1);
    server->stop(Duration::zero());
    EXPECT_EQ(server->counters().calls_in_flight, 0U);
    native.reset();
    server.reset();
  }
}

// The work that waits for a thread is withdrawn with the task of next() that made it.
TEST_P(HttpJsonOrder, AConversionThatIsGivenUpDoesNotBegin) {
  options.loop.offload_threads_max = 1;
  make_server();
  std::atomic<int> given_up{0};
  server->use([&given_up](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (call.protocol() != "http" || call.metadata().find("x-token")) co_return co_await next();
    {
      Scope scope;
      scope.spawn([](Next rest) -> Task<void> { static_cast<void>(co_await rest()); }(next));
      co_await call.loop().sleep(1ms);
    }
    ++given_up;
    co_return fail(ErrorCode::permission_denied, "no patience");
  });
  start();
  gate_closed = true;
  const std::string json = "\"" + std::string(100'000, 'y') + "\"";
  Answer answer;
  std::jthread first([&] { answer = post(json, true); });
  EXPECT_TRUE(soon([&] { return conversions == 1; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post(json, false).status, 403);
  EXPECT_EQ(given_up, 3);
  open_gate();
  first.join();
  EXPECT_EQ(answer.body, json);
  EXPECT_EQ(post(json, true).body, json);
  EXPECT_EQ(conversions, 2) << "only those that were awaited";
  EXPECT_TRUE(only_native_left());
}

TEST_P(HttpJsonOrder, CompressedJson) {
  if (!protocol::http::can_gzip()) GTEST_SKIP() << "built without zlib";
  make_server();
  use_token();
  start();
  const auto packed = [](const std::string& text) { return protocol::http::gzip(as_bytes(text)).value_or(""); };
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{500'000}}) {
    const std::string json = "\"" + std::string(bytes, 'y') + "\"";
    conversions = 0;
    EXPECT_EQ(post(packed(json), false, "/test.Text/Counted", true).status, 401);
    EXPECT_EQ(conversions, 0);
    EXPECT_EQ(post(packed(json), true, "/test.Text/Counted", true).body, json);
    EXPECT_EQ(post(packed(std::string(bytes, 'x')), true, "/test.Text/Counted", true).status, 400);
  }
  EXPECT_TRUE(only_native_left());
}

// Bodies of a caller that is refused are not decompressed: they are not gzip.
TEST_P(HttpJsonOrder, RefusedBodiesAreNotDecompressed) {
  if (!protocol::http::can_gzip()) GTEST_SKIP() << "built without zlib";
  make_server();
  use_token();
  start();
  const std::string states_one_byte("\1\0\0\0", 4);
  for (const std::string& body : {"junk" + states_one_byte, std::string(100'000, 'j') + states_one_byte}) {
    for (const char* path : {"/test.Text/Counted", "/hello"}) {
      EXPECT_EQ(post(body, false, path, true).status, 401) << path;
      EXPECT_EQ(post(body, true, path, true).status, 400) << path;
      const std::string bytes = std::to_string(body.size());
      EXPECT_EQ(seen.take(), std::vector<std::string>({bytes + " " + bytes +
                                                       " the body is not one valid gzip member of the length that its "
                                                       "end states"}));
    }
  }
  const std::string text(500'000, 'y');
  const std::string packed = protocol::http::gzip(as_bytes(text)).value_or("");
  EXPECT_EQ(post(packed, true, "/hello", true).status, 200);
  EXPECT_EQ(seen.take(), std::vector<std::string>({std::to_string(packed.size()) + " 500000 ok"}));
  EXPECT_TRUE(only_native_left());
}

// Interceptors give up while threads convert the JSON. The threads go on, and their memory is charged: the budget of
// the loop bounds it.
TEST_P(HttpJsonOrder, AConversionThatIsGivenUpIsChargedUntilItEnds) {
  options.loop.offload_threads_max = 4;
  options.receive_bytes_max = options.receive_share_bytes_max = options.receive_peer_bytes_max = 4 << 20;
  make_server();
  server->use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (call.protocol() != "http" || call.metadata().find("x-token")) co_return co_await next();
    const int before = conversions;
    std::optional<Result<void>> outcome;
    Scope scope;
    scope.spawn([](Next rest, std::optional<Result<void>>& to) -> Task<void> { to = co_await rest(); }(next, outcome));
    while (conversions == before && !outcome) {
      co_await call.loop().sleep(1ms);
    }
    if (outcome) co_return *outcome;
    co_return fail(ErrorCode::permission_denied, "no more patience");
  });
  start();
  gate_closed = true;
  const std::string json = "\"" + std::string(100'000, 'y') + "\"";
  for (const std::size_t given_up : {1U, 2U, 3U, 4U}) {
    EXPECT_EQ(post(json, false).status, 403);
    EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
    EXPECT_GE(server->counters().receive_bytes, given_up * (1 + rpc::BodyForm::json_memory_factor) * json.size());
  }
  EXPECT_EQ(post(json, false).status, 503);
  EXPECT_EQ(post(json, true).status, 503);
  EXPECT_EQ(conversions, 4);
  open_gate();
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
  EXPECT_EQ(post(json, true).status, 200);
  EXPECT_TRUE(only_native_left());
}

// The client goes away while a thread converts the result.
TEST_P(HttpJsonOrder, AResultIsChargedUntilItsConversionEnds) {
  make_server();
  start();
  const std::string json = "\"" + std::string(400'000, 'y') + "\"";
  result_gate_closed = true;
  if (GetParam()) {
    Http2Client client(server->address());
    client.begin("POST", "/test.Text/Counted", {}, {json});
    EXPECT_TRUE(client.until([] { return results == 1; }));
  } else {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("POST /test.Text/Counted HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                         std::to_string(json.size()) + "\r\n\r\n" + json));
    EXPECT_TRUE(soon([] { return results == 1; }));
  }
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
  EXPECT_GE(server->counters().receive_bytes, 4 * json.size());
  open_gate();
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
  EXPECT_TRUE(only_native_left());
}

INSTANTIATE_TEST_SUITE_P(Http1, HttpJsonStop, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Versions, HttpJsonOrder, ::testing::Bool(),
                         [](const auto& version) { return std::string(version.param ? "http2" : "http1"); });

}  // namespace hawser::http_json_order
