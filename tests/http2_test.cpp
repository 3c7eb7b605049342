#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "hawser/health.h"
#include "hawser/http.h"
#include "hawser/interceptor.h"
#include "protocol/grpc/test/machine_pair.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"
#include "tests/output_of.h"
#include "tests/skipped_calls.h"

// HTTP over HTTP/2, on the connections that gRPC uses too. A native client calls the server all the time.
namespace hawser {
namespace {

using namespace http_test;
namespace h2 = protocol::grpc::testing;
using Fields = Http2Client::Fields;

// Its conversion of arguments waits for `released`.
class GatedTranscoder final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override {
    waiting.fetch_add(1);
    soon([] { return released.load(); });
    return text_.arguments_from_json(json);
  }
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    return text_.result_to_json(body, payload);
  }
  std::string_view encoding() const noexcept override { return text_.encoding(); }

 private:
  TextTranscoder text_;
};

class Http2 : public ServerFixture {
 protected:
  void start(GrpcOptions grpc_options = {}, HttpOptions http_options = {}) {
    make_server();
    using Facts = detail::MethodFacts<say>;
    server->add_method({.id = 7,
                        .signature = Facts::signature,
                        .name = "test.Text/Gated",
                        .handler = std::make_unique<detail::FunctionHandler<say, void>>(nullptr, HandlerOptions{}),
                        .json = std::make_shared<GatedTranscoder>()});
    server->enable(grpc(grpc_options));
    server->enable(add_routes(http(http_options)).route("GET", "/files/*", hello));
    start_server();
  }
};

TEST_F(Http2, CallsMethods) {
  start();
  Http2Client client(server->address());
  Http2Client::Response said = client.post("/test.Text/Say", "\"hello\"", {{"content-type", "application/json"}});
  EXPECT_EQ(said.status, 200);
  EXPECT_EQ(said.body, "\"hello\"");
  EXPECT_TRUE(said.has("content-type", "application/json"));
  EXPECT_TRUE(said.has("content-length", "7"));
  EXPECT_TRUE(said.ended);
  EXPECT_EQ(said.code, 0U);
  EXPECT_TRUE(said.fields.contains("date"));
  EXPECT_EQ(client.post("/test.Text/Say", "\"hello\"").body, "\"hello\"");
  said = client.post("/test.Text/Later", "\"later\"", {{"x-one", "1"}, {"cookie", "a=b"}});
  EXPECT_EQ(said.body, "\"later\"");
  EXPECT_TRUE(said.has("x-back-x-one", "1"));
  EXPECT_FALSE(said.fields.contains("x-back-cookie"));
  for (const char* type : {"application/proto", "application/x-protobuf; a=b", "application/octet-stream"}) {
    said = client.post("/test.Bytes/Repeat", "bytes", {{"content-type", type}});
    EXPECT_EQ(said.body, "bytes");
    EXPECT_TRUE(said.has("content-type", "application/proto"));
  }
  EXPECT_EQ(client.ask("POST", "/test.Bytes/Repeat", {{"content-type", "application/proto"}}).status, 200);
  EXPECT_EQ(client.post("/hawser::testing_tools::echo", "\"plain\"").body, "\"plain\"");
}

TEST_F(Http2, LongJsonIsConvertedOnAnotherThread) {
  start();
  Http2Client client(server->address());
  const std::string text = "\"" + std::string(100'000, 'x') + "\"";
  EXPECT_EQ(client.post("/test.Text/Say", text).body, text);
  EXPECT_EQ(client.post("/test.Text/Later", text).body, text);
  EXPECT_EQ(client.post("/test.Text/Say", std::string(100'000, 'x')).status, 400);
  // Many at once, of which some are given up.
  std::vector<std::int32_t> all;
  for (int i = 0; i < 20; ++i) all.push_back(client.begin("POST", "/test.Text/Later", {}, {text}));
  for (std::size_t i = 0; i < all.size(); i += 2) client.reset(all[i]);
  EXPECT_TRUE(client.until([&] {
    for (std::size_t i = 1; i < all.size(); i += 2) {
      if (!client.responses[all[i]].closed) return false;
    }
    return true;
  }));
  EXPECT_EQ(client.responses[all[1]].body, text);
}

TEST_F(Http2, MapsErrors) {
  start();
  Http2Client client(server->address());
  const auto status = [&](const std::string& method, const std::string& path, const Fields& fields = {},
                          const std::string& body = "\"a\"") {
    return client.ask(method, path, fields, {body}).status;
  };
  EXPECT_EQ(status("POST", "/test.Text/Nothing"), 404);
  EXPECT_EQ(status("PUT", "/test.Text/Say"), 405);
  EXPECT_EQ(status("POST", "/test.Text/Say", {{"content-type", "text/html"}}), 415);
  EXPECT_EQ(status("POST", "/test.Text/Say", {{"content-type", "application/grpc-web"}}), 415);
  EXPECT_EQ(status("POST", "/test.Bytes/Stream"), 501);
  EXPECT_EQ(status("POST", "/test.Text/Say", {}, "no json"), 400);
  EXPECT_EQ(status("POST", "/test.Text/Say", {}, "\"no json\""), 500);
  EXPECT_EQ(status("DELETE", "/hello"), 405);
  EXPECT_EQ(status("OPTIONS", "*"), 200) << "whether the server answers";
  EXPECT_EQ(status("GET", "*"), 400);
  EXPECT_EQ(status("POST", "/health"), 405);
  EXPECT_EQ(status("POST", "/test.Text/Wait", {{"timeout-ms", "1"}}), 504);
  EXPECT_EQ(status("POST", "/test.Text/Wait", {{"grpc-timeout", "1m"}}), 504);
  const Http2Client::Response failed = client.post("/test.Text/Later", "\"fail\"");
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.body, "{\"code\":\"application\",\"application_code\":7,\"message\":\"it \\\"failed\\\"\\n\"}\n");
  EXPECT_EQ(client.post("/test.Text/Later", "\"throw\"").status, 500);
  EXPECT_EQ(client.ask("GET", "/broken").status, 500);
  EXPECT_TRUE(client.ask("DELETE", "/hello").has("allow", "GET, HEAD, POST"));
}

TEST_F(Http2, ADeadlineThatHasPassedRunsNoHandler) {
  start();
  Http2Client client(server->address());
  const auto call = [&](const std::string& path, const std::string& timeout) {
    const Fields fields = {{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", timeout}};
    const Http2Client::Response said = client.ask("POST", path, fields, {std::string("\0\0\0\0\5bytes", 10)});
    EXPECT_EQ(said.status, 200) << timeout;
    const auto status = said.fields.find("grpc-status");
    return status == said.fields.end() ? std::string() : status->second;
  };
  for (const char* const zero : {"0n", "0u", "0m", "0S", "0M", "0H", "00000000n"}) {
    EXPECT_EQ(call("/test.Bytes/Repeat", zero), "4") << zero;
    EXPECT_EQ(call("/test.Bytes/Stream", zero), "4") << zero;
  }
  for (const char* const wrong : {"", "0", "n", "5", "-1S", "+1S", "1 S", "1.5S", "1s", "0x1S", "123456789n"}) {
    EXPECT_EQ(call("/test.Bytes/Repeat", wrong), "13") << wrong;
  }
  EXPECT_EQ(call("/test.Bytes/Repeat", "99999999H"), "0");
  EXPECT_EQ(client.post("/test.Text/Say", "\"a\"", {{"timeout-ms", "0"}}).status, 504);
  EXPECT_EQ(client.ask("GET", "/hello", {{"timeout-ms", "0"}}).status, 504);
  EXPECT_EQ(client.post("/test.Text/Say", "\"a\"", {{"timeout-ms", "99999999999999999999"}}).status, 200);
}

TEST_F(Http2, ServesRoutes) {
  start();
  Http2Client client(server->address());
  const Http2Client::Response given = client.ask("GET", "/hello?a=b", {{"x-name", "Ada"}});
  EXPECT_EQ(given.status, 200);
  EXPECT_EQ(given.body, "GET /hello?a=b Ada ");
  EXPECT_TRUE(given.has("x-good", "yes"));
  EXPECT_FALSE(given.fields.contains("x-bad"));
  EXPECT_TRUE(given.has("content-length", std::to_string(given.body.size())));
  EXPECT_EQ(client.post("/hello", "body").body, "POST /hello? nobody body");
  EXPECT_EQ(client.ask("GET", "/v1/users/7").body, "id=7;");
  const Http2Client::Response head = client.ask("HEAD", "/hello");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.fields.at("content-length"), "20");
  EXPECT_EQ(client.ask("GET", "/empty").status, 204);
  EXPECT_EQ(client.ask("GET", "/health").body, "OK\n");
  ServerHealth(*server).set("shop", false);
  EXPECT_EQ(client.ask("GET", "/health?service=shop").body, "not serving\n");
  EXPECT_EQ(client.ask("GET", "/large").body.size(), std::size_t{1} << 20);
}

TEST_F(Http2, InterceptorsSurroundMethodsAndRoutes) {
  server = std::make_unique<Server>(options);
  server->use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    const bool known = call.metadata().find("authorization") || call.method().ends_with("echo");
    if (!known) co_return fail(ErrorCode::unauthenticated, "who are you?");
    call.add_reply_metadata("x-seen", std::string(call.method()));
    co_return co_await next();
  });
  start();
  Http2Client client(server->address());
  EXPECT_EQ(client.ask("GET", "/hello").status, 401);
  EXPECT_EQ(client.post("/test.Text/Say", "\"a\"").status, 401);
  EXPECT_TRUE(client.ask("GET", "/hello", {{"authorization", "me"}}).has("x-seen", "GET /hello"));
  EXPECT_TRUE(client.post("/test.Text/Later", "\"a\"", {{"authorization", "me"}}).has("x-seen", "test.Text/Later"));
}

TEST_F(Http2, InterceptorsThatSkipCallsSeeTheirEnds) {
  const SkipsAll skips;
  server = std::make_unique<Server>(options);
  server->use(skips);
  start();
  Http2Client client(server->address());
  const Fields grpc_fields = {{"te", "trailers"}, {"content-type", "application/grpc"}};
  const std::string message("\0\0\0\0\3abc", 8);
  EXPECT_EQ(client.post("/test.Text/Say", "\"a\"").status, 200);  // Answered at once.
  EXPECT_EQ(client.ask("POST", "/test.Bytes/Repeat", grpc_fields, {message}).body, message);
  EXPECT_EQ(skips.listed(), 0U);
  EXPECT_EQ(client.post("/test.Text/Later", "\"fail\"").status, 500);
  EXPECT_EQ(client.ask("GET", "/hello").status, 200);
  EXPECT_EQ(client.ask("GET", "/broken").status, 500);
  const std::vector<std::string> lines = skips.take("http");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "http test.Text/Later: it \"failed\"\n");
  EXPECT_EQ(lines[1], "http GET /hello: result of 19");
  EXPECT_TRUE(lines[2].starts_with("http GET /broken: the handler threw an exception")) << lines[2];
}

TEST_F(Http2, GrpcAndHttpShareAConnection) {
  start();
  Http2Client client(server->address());
  const Fields grpc_fields = {{"te", "trailers"}, {"content-type", "application/grpc"}};
  const std::string message("\0\0\0\0\3abc", 8);
  for (int i = 0; i < 50; ++i) {
    const std::int32_t called = client.begin("POST", "/test.Bytes/Repeat", grpc_fields, {message});
    const std::int32_t asked = client.begin("POST", "/test.Text/Later", {}, {"\"text\""});
    ASSERT_TRUE(client.until([&] { return client.responses[called].closed && client.responses[asked].closed; }));
    EXPECT_EQ(client.responses[called].body, message);
    EXPECT_TRUE(client.responses[called].has("grpc-status", "0"));
    EXPECT_EQ(client.responses[asked].body, "\"text\"");
    EXPECT_FALSE(client.responses[asked].fields.contains("grpc-status"));
  }
  EXPECT_EQ(client.ask("GET", "/x", {{"content-type", "application/grpc"}}).status, 405);
}

TEST_F(Http2, BodiesArriveInAnyPieces) {
  start();
  Http2Client client(server->address());
  std::vector<std::string> pieces;
  std::string whole;
  for (std::size_t i = 0; i < 300; ++i) {
    pieces.push_back(std::string(1 + i * i % 997, static_cast<char>('a' + i % 26)));
    whole += pieces.back();
  }
  const Fields bytes = {{"content-type", "application/proto"}};
  EXPECT_EQ(client.ask("POST", "/test.Bytes/Repeat", bytes, pieces).body, whole);
  Fields with_length = bytes;
  with_length.emplace_back("content-length", std::to_string(whole.size()));
  with_length.emplace_back("expect", "100-continue");
  const Http2Client::Response response = client.ask("POST", "/test.Bytes/Repeat", with_length, pieces);
  EXPECT_EQ(response.body, whole);
  EXPECT_EQ(response.interim, std::vector<int>{100});
  const std::string most(1 << 20, 'x');
  EXPECT_EQ(client.post("/test.Bytes/Repeat", most, bytes).body, most);
  Fields with_most = bytes;
  with_most.emplace_back("content-length", std::to_string(most.size()));
  EXPECT_EQ(client.ask("POST", "/test.Bytes/Repeat", with_most, {most}).body, most) << "the limit itself";
}

TEST_F(Http2, TooLargeBodiesAreRefusedBeforeTheirEnd) {
  start();
  Http2Client client(server->address());
  const Fields bytes = {{"content-type", "application/proto"}};
  for (const Fields& fields : {bytes, Fields{{"content-type", "application/proto"}, {"content-length", "1048577"}}}) {
    // The stream is not ended by the client.
    const std::int32_t id =
        client.begin("POST", "/test.Bytes/Repeat", fields, {std::string((1 << 20) + 1, 'x')}, false);
    EXPECT_TRUE(client.until([&] { return client.responses[id].closed; }));
    EXPECT_EQ(client.responses[id].status, 413);
    EXPECT_EQ(client.responses[id].code, 0U);
  }
  EXPECT_EQ(client.post("/test.Bytes/Repeat", "goes on", bytes).body, "goes on");
}

TEST_F(Http2, RefusesWhatAProxyCouldReadDifferently) {
  start();
  Http2Client client(server->address());
  EXPECT_EQ(client.ask("GET", "/hello", {{"host", "other"}}).status, 400);
  EXPECT_EQ(client.ask("GET", "/hello", {{"host", "test"}}).status, 200);
  EXPECT_EQ(client.ask("GET", "/hello", {{"host", "TeST"}}).status, 200);
  EXPECT_EQ(client.ask("GET", "/hello", {{"host", " other"}}).status, 400);
  EXPECT_EQ(client.ask("GET", "/hello", {{"host", " test "}}).status, 200);
  EXPECT_EQ(client.ask("GET", "/hello", {{"expect", "much"}}).status, 417);
  EXPECT_NE(client.ask("GET", "hello").status, 200);
  EXPECT_NE(client.ask("GET", "http://test/hello").status, 200);
  // These streams are reset.
  for (const Fields& fields :
       {Fields{{"connection", "keep-alive"}}, Fields{{"transfer-encoding", "chunked"}}, Fields{{"content-length", "1"}},
        Fields{{"content-length", "1"}, {"content-length", "1"}}, Fields{{":path", "/health"}},
        Fields{{"x-a", "a\r\nb: c"}}, Fields{{"x-forwarded-for", "\x01, 192.0.2.1"}}, Fields{{"x(a", "1"}}}) {
    const Http2Client::Response response = client.ask("POST", "/hello", fields, {"ab"});
    EXPECT_EQ(response.status, 0) << fields[0].first;
    EXPECT_NE(response.code, 0U) << fields[0].first;
  }
  Fields many;
  for (int i = 0; i < 101; ++i) many.emplace_back("x-" + std::to_string(i), "1");
  EXPECT_EQ(client.ask("GET", "/hello", many).status, 431);
  EXPECT_EQ(client.ask("GET", "/hello", {{"x-large", std::string(20'000, 'x')}}).status, 431);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST_F(Http2, StreamsBodies) {
  start();
  Http2Client client(server->address());
  const Http2Client::Response response = client.ask("GET", "/streamed");
  EXPECT_EQ(response.body.size(), 1'000'000U);
  EXPECT_EQ(response.body.substr(999'000), std::string(1000, static_cast<char>('a' + 999 % 26)));
  EXPECT_FALSE(response.fields.contains("content-length"));
  EXPECT_EQ(client.ask("HEAD", "/streamed").body, "");
  const Http2Client::Response cut = client.ask("GET", "/cut");
  EXPECT_FALSE(cut.ended);
  EXPECT_EQ(cut.code, static_cast<std::uint32_t>(NGHTTP2_INTERNAL_ERROR));
  EXPECT_EQ(cut.status, 200);
  EXPECT_EQ(cut.body, "part");
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST_F(Http2, ResponsesThatBreakAreNotCountedAgainstTheClient) {
  start({.idle_frames_max = 100, .idle_frames_per_second = 1});
  Http2Client client(server->address());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.ask("GET", "/cut").code, static_cast<std::uint32_t>(NGHTTP2_INTERNAL_ERROR));
  }
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  EXPECT_EQ(server->counters().protocol_errors, 0U);
}

TEST_F(Http2, TrailersOfRequestsAreIgnored) {
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  const std::string fields =
      h2::hpack({{":method", "POST"}, {":scheme", "http"}, {":path", "/test.Text/Say"}, {":authority", "test"}});
  socket.send(as_bytes(h2::hello() + h2::frame(1, 4, 1, fields) + h2::frame(0, 0, 1, "\"a text\"") +
                       h2::frame(1, 5, 1, h2::hpack({{"x-trailer", "b"}}))));
  EXPECT_TRUE(socket.receive_text("\"a text\"").ends_with("\"a text\""));
}

TEST_F(Http2, EndlessStreamsAreBoundedAndEndWithTheirClient) {
  options.send_backlog_bytes_max = 1 << 20;
  start();
  // Without a window: nothing is taken. A stream queues 128 KiB and waits.
  Http2Client idle(server->address(), 0);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(idle.begin("GET", "/endless"));
  for (const std::int32_t id : ids) EXPECT_TRUE(idle.until([&] { return idle.responses[id].status == 200; }));
  // They do not stop other streams of the connection.
  EXPECT_EQ(idle.ask("HEAD", "/hello").status, 200);
  idle.reset(ids[0]);
  idle.reset(ids[1]);
  EXPECT_TRUE(idle.until([&] { return cancelled == 2; }));
  // More streams than the backlog has room for: the later ones wait until there is room.
  for (int i = 0; i < 30; ++i) ids.push_back(idle.begin("GET", "/endless"));
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes >= 1 << 20; }));
  EXPECT_EQ(idle.responses[ids.back()].status, 0);
  for (std::size_t i = 2; i + 1 < ids.size(); ++i) idle.reset(ids[i]);
  EXPECT_TRUE(idle.until([&] { return idle.responses[ids.back()].status == 200; }));
  EXPECT_EQ(server->counters().calls_refused, 0U);
  idle.socket().close();
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
  cancelled = 20;
  {
    Http2Client reader(server->address());
    const std::int32_t id = reader.begin("GET", "/endless");
    EXPECT_TRUE(reader.until([&] { return reader.responses[id].body.size() > 10'000'000; }));
    reader.reset(id);
    EXPECT_TRUE(reader.until([&] { return cancelled == 21; }));
    EXPECT_EQ(reader.ask("GET", "/health").status, 200);
  }
  EXPECT_TRUE(only_native_left());
}

// Over HTTP/2 a client may keep its connection alive by PINGs and open no window.
TEST_F(Http2, AClientThatOpensNoWindowLosesItsResponses) {
  HttpOptions http_options;
  http_options.write_timeout = 50ms;
  start({}, http_options);
  Http2Client idle(server->address(), 0);
  const std::int32_t endless = idle.begin("GET", "/endless");
  const std::int32_t whole = idle.begin("GET", "/large");
  EXPECT_TRUE(idle.until([&] { return idle.responses[endless].closed && idle.responses[whole].closed; }));
  EXPECT_EQ(idle.responses[endless].code, static_cast<std::uint32_t>(NGHTTP2_CANCEL));
  EXPECT_EQ(idle.responses[whole].code, static_cast<std::uint32_t>(NGHTTP2_CANCEL));
  EXPECT_TRUE(soon([&] { return cancelled == 1 && server->counters().calls_in_flight == 0; }));
  // The connection goes on.
  EXPECT_EQ(idle.ask("HEAD", "/hello").status, 200);
}

// Neither does it help to open the window byte by byte.
TEST_F(Http2, AClientThatOpensItsWindowByBytesLosesItsResponse) {
  HttpOptions http_options;
  http_options.write_timeout = 50ms;
  start({.idle_frames_max = 1'000'000}, http_options);
  RawSocket socket = RawSocket::connected_to(server->address());
  const std::string no_window("\0\4\0\0\0\0", 6);
  socket.send(as_bytes(
      h2::hello() + h2::frame(4, 0, 0, no_window) +
      h2::frame(1, 5, 1,
                h2::hpack({{":method", "GET"}, {":scheme", "http"}, {":path", "/endless"}, {":authority", "test"}}))));
  const std::string one_byte = h2::frame(8, 0, 1, std::string("\0\0\0\1", 4));
  EXPECT_TRUE(soon([&] {
    socket.send_some(as_bytes(one_byte));
    return cancelled == 1;
  }));
}

TEST_F(Http2, PathsThatAHandlerCouldReadDifferentlyAreRefused) {
  start();
  Http2Client client(server->address());
  for (const char* path : {"/files/../hello", "/files/%2e%2E/hello", "/files/a%2F..%2fb", "/files//hello",
                           "/files/a%2fb", "/files/a%00", "/files/%zz"}) {
    EXPECT_EQ(client.ask("GET", path).status, 400) << path;
  }
  EXPECT_EQ(client.ask("GET", "/files/a%20b/").status, 200);
}

TEST_F(Http2, AClientThatGoesAwayCancelsItsCalls) {
  start();
  Http2Client client(server->address());
  const std::int32_t route = client.begin("GET", "/wait");
  client.begin("POST", "/test.Text/Wait", {}, {"\"a\""});
  EXPECT_TRUE(soon([&] { return waiting == 2; }));
  client.reset(route);
  EXPECT_TRUE(soon([&] { return cancelled == 1; }));
  client.begin("POST", "/test.Text/Say", {}, {"\"a part"}, false);  // Its body does not end.
  client.socket().reset();
  EXPECT_TRUE(soon([&] { return cancelled == 2; }));
  EXPECT_TRUE(only_native_left());
}

TEST_F(Http2, StopsGracefully) {
  start();
  Http2Client client(server->address());
  const std::int32_t held = client.begin("GET", "/held");
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  std::thread stopping([&] { server->stop(patience); });
  EXPECT_TRUE(client.until([&] { return client.goaway; }));
  released = true;
  EXPECT_TRUE(client.until([&] { return client.responses[held].closed; }));
  EXPECT_EQ(client.responses[held].body, "released");
  EXPECT_TRUE(client.until([&] { return client.ended; }));
  stopping.join();
  native->stop();
  native.reset();
}

// A request that was accepted before the second GOAWAY is served, although its call begins later.
TEST_F(Http2, AConversionOutlivesTheSecondGoaway) {
  start();
  Http2Client client(server->address());
  const std::string text = "\"" + std::string(100'000, 'x') + "\"";
  const std::int32_t gated = client.begin("POST", "/test.Text/Gated", {}, {text});
  EXPECT_TRUE(client.until([&] { return waiting == 1; }));
  native->stop();
  native.reset();
  std::thread stopping([&] { server->stop(patience); });
  EXPECT_TRUE(client.until([&] { return client.goaways == 2; }));
  std::this_thread::sleep_for(1500ms);  // Longer than a silent connection of a stopping server lasts.
  released = true;
  EXPECT_TRUE(client.until([&] { return client.responses[gated].closed; }));
  EXPECT_EQ(client.responses[gated].status, 200);
  EXPECT_EQ(client.responses[gated].body, text);
  EXPECT_TRUE(client.until([&] { return client.ended; }));
  stopping.join();
}

TEST_F(Http2, BodiesShareTheMemoryOfTheServer) {
  options.message_bytes_max = 1 << 20;
  options.receive_bytes_max = 4 << 20;
  start();
  Http2Client client(server->address());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 30; ++i) {
    ids.push_back(client.begin("POST", "/test.Bytes/Repeat", {{"content-type", "application/proto"}},
                               {std::string(1'000'000, 'x')}, false));
  }
  const auto refused = [&] {
    return std::ranges::count_if(ids, [&](std::int32_t id) { return client.responses[id].status == 503; });
  };
  EXPECT_TRUE(client.until([&] { return refused() > 0; }));
  for (const std::int32_t id : ids) client.reset(id);
  EXPECT_EQ(client.post("/test.Bytes/Repeat", "goes on", {{"content-type", "application/proto"}}).body, "goes on");
}

TEST_F(Http2, LimitsOfCallsHold) {
  options.calls_per_connection_max = 2;
  start();
  Http2Client client(server->address());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(client.begin("GET", "/held"));
  EXPECT_TRUE(soon([&] { return waiting == 2; }));
  released = true;
  // The client waits with the others until the server allows further streams.
  EXPECT_TRUE(client.until(
      [&] { return std::ranges::all_of(ids, [&](std::int32_t id) { return client.responses[id].closed; }); }));
  for (const std::int32_t id : ids) {
    const Http2Client::Response& response = client.responses[id];
    EXPECT_TRUE(response.status == 200 || response.code == NGHTTP2_REFUSED_STREAM) << response.status;
  }
}

TEST_F(Http2, CurlIsServed) {
  if (output_of("command -v curl").empty()) GTEST_SKIP() << "curl is not installed";
  start();
  const std::string curl = "timeout 60 curl -sS --noproxy '*' --http2-prior-knowledge ";
  const std::string url = "http://" + server->address();
  EXPECT_EQ(output_of(curl + "-d '\"hello\"' -H 'Content-Type: application/json' -w ' %{http_version}' " + url +
                      "/test.Text/Say"),
            "\"hello\" 2");
  EXPECT_EQ(output_of(curl + url + "/health"), "OK\n");
  EXPECT_EQ(output_of(curl + url + "/large | wc -c"), "1048576\n");
  EXPECT_EQ(output_of("head -c 1000000 /dev/zero | " + curl + "-T - -X POST -H 'Content-Type: application/proto' " +
                      url + "/test.Bytes/Repeat | wc -c"),
            "1000000\n");
}

// ---- Hostile clients ----

std::string open_request(std::size_t i, std::string_view path, std::uint8_t flags = 5,
                         std::string_view method = "GET") {
  return h2::frame(1, flags, static_cast<std::uint32_t>(2 * i + 1),
                   h2::hpack({{":method", method}, {":scheme", "http"}, {":path", path}, {":authority", "test"}}));
}
std::string reset_request(std::size_t i) {
  return h2::frame(3, 0, static_cast<std::uint32_t>(2 * i + 1), std::string("\0\0\0\10", 4));
}

struct Flood {
  const char* name;
  std::function<std::string(std::size_t)> next;
};

class Http2Flood : public Http2, public ::testing::WithParamInterface<Flood> {};

// The attacker is cut off, and nothing of it is left.
TEST_P(Http2Flood, EndsWhileAGoodClientGoesOn) {
  start({.idle_frames_per_second = 1});  // The attacker may be slow.
  Http2Client good(server->address());
  EXPECT_EQ(good.ask("GET", "/hello").status, 200);
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes(h2::hello()));
  std::string parts;
  bool open = true;
  for (std::size_t i = 0; i < 5000 && open; ++i) {
    parts += GetParam().next(i);
    if (parts.size() < 10'000) continue;
    open = socket.send(as_bytes(parts));
    parts.clear();
  }
  EXPECT_TRUE(!open || !socket.send(as_bytes(parts)) || socket.closed_by_peer());
  EXPECT_EQ(good.ask("GET", "/hello").status, 200);
  EXPECT_GE(server->counters().protocol_errors, 1U);
  good.socket().close();
  EXPECT_TRUE(only_native_left());
}

INSTANTIATE_TEST_SUITE_P(
    Floods, Http2Flood,
    ::testing::Values(
        Flood{"RapidReset", [](std::size_t i) { return open_request(i, "/wait") + reset_request(i); }},
        Flood{"RapidResetOfBodies",
              [](std::size_t i) {
                return open_request(i, "/test.Text/Say", 4, "POST") +
                       h2::frame(0, 0, static_cast<std::uint32_t>(2 * i + 1), "\"some") + reset_request(i);
              }},
        Flood{"RapidResetOfStreams", [](std::size_t i) { return open_request(i, "/endless") + reset_request(i); }},
        Flood{"EmptyData",
              [](std::size_t i) { return i == 0 ? open_request(0, "/hello", 4, "POST") : h2::frame(0, 0, 1, {}); }},
        Flood{"Continuation",
              [](std::size_t i) {
                return i == 0 ? open_request(0, "/hello", 0) : h2::frame(9, 0, 1, h2::hpack({{"a", "b"}}));
              }},
        Flood{"CausedResets",
              [](std::size_t i) {
                return open_request(i, "/hello", 4, "POST") +
                       h2::frame(8, 0, static_cast<std::uint32_t>(2 * i + 1), "\x7f\xff\xff\xff");
              }},
        Flood{"WindowUpdates",
              [](std::size_t i) {
                return i == 0 ? open_request(0, "/wait") : h2::frame(8, 0, 1, std::string("\0\0\0\1", 4));
              }},
        Flood{"HeaderList",
              [](std::size_t i) {
                std::string block =
                    h2::hpack({{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "t"}});
                block += std::string("\x40\x03x-a", 5) + std::string("\x7f\xa1\x1e", 3) + std::string(4000, 'v');
                return h2::frame(1, 5, static_cast<std::uint32_t>(2 * i + 1), block + std::string(8000, '\xbe'));
              }},
        Flood{"Malformed",
              [](std::size_t i) {
                return h2::frame(1, 5, static_cast<std::uint32_t>(2 * i + 1),
                                 h2::hpack({{":method", "GET"}, {":scheme", "http"}, {"X", "y"}}));
              }}),
    [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace hawser
