#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "tests/grpc/raw_service.h"
#include "tests/http2_client.h"

// Clients that do not take the responses of their calls.
namespace hawser {
namespace {

using namespace testing_tools;

// A message with its prefix.
std::string grpc_message(std::string_view bytes) {
  std::string out(5, '\0');
  for (unsigned i = 0; i < 4; ++i) out[1 + i] = static_cast<char>(bytes.size() >> (24 - 8 * i));
  return out + std::string(bytes);
}

class GrpcPace : public ::testing::Test {
 protected:
  void start(GrpcOptions options) {
    register_raw_service(server);
    server.enable(grpc(options));
    const Result<void> started = server.start();
    ASSERT_TRUE(started) << error_of(started);
  }
  static std::int32_t begin(Http2Client& client, const std::string& method, std::string_view bytes, bool end = true) {
    return client.begin("POST", "/test.Raw/" + method, {{"content-type", "application/grpc"}, {"te", "trailers"}},
                        {grpc_message(bytes)}, end);
  }

  Server server{ServerOptions{.loop = {.log = [](LogLevel, std::string_view, std::string_view) {}}}};
};

TEST_F(GrpcPace, AClientThatOpensNoWindowLosesItsCalls) {
  start({.write_timeout = 50ms});
  Http2Client idle(server.address(), 0);
  const std::int32_t unary = begin(idle, "Echo", "a reply that waits");
  const std::int32_t stream = begin(idle, "Watch", "");
  const std::int32_t both = begin(idle, "Converse", "an item that waits", false);
  EXPECT_TRUE(idle.until(
      [&] { return idle.responses[unary].closed && idle.responses[stream].closed && idle.responses[both].closed; }));
  for (const std::int32_t id : {unary, stream, both}) {
    EXPECT_EQ(idle.responses[id].code, static_cast<std::uint32_t>(NGHTTP2_CANCEL));
  }
  EXPECT_TRUE(idle.until([&] { return raw_handlers_running() == 0 && server.counters().calls_in_flight == 0; }));
  // The connection goes on. The status of a call that fails needs no window.
  const std::int32_t failed = begin(idle, "Fail", "05text");
  EXPECT_TRUE(idle.until([&] { return idle.responses[failed].closed; }));
  EXPECT_TRUE(idle.responses[failed].has("grpc-status", "5"));
}

TEST_F(GrpcPace, AStreamThatWaitsForNothingGoesOn) {
  start({.write_timeout = 10ms});
  Http2Client client(server.address());
  const std::int32_t quiet = begin(client, "Converse", "first", false);
  EXPECT_TRUE(client.until([&] { return client.responses[quiet].body == grpc_message("first"); }));
  // A stream of a client that takes nothing, begun later, shows that the checks go on meanwhile.
  for (int i = 0; i < 3; ++i) {
    Http2Client idle(server.address(), 0);
    const std::int32_t stream = begin(idle, "Watch", "");
    EXPECT_TRUE(idle.until([&] { return idle.responses[stream].closed; }));
  }
  client.flush();
  EXPECT_EQ(client.ask("POST", "/test.Raw/Fail", {{"content-type", "application/grpc"}}, {grpc_message("05text")})
                .fields["grpc-status"],
            "5");
  EXPECT_TRUE(
      client.until([&] { return server.counters().calls_in_flight == 1; }));  // The handlers of Watch have ended.
  EXPECT_FALSE(client.responses[quiet].closed);
}

// A client that reads one stream gets its items, whatever others of its connection hold.
TEST(GrpcPaceOfStreams, StreamsThatNobodyReadsDoNotStopTheOthers) {
  ServerOptions options;
  options.send_backlog_bytes_max = 256 * 1024;
  Server server(options);
  register_raw_service(server);
  server.enable(grpc());
  const Result<void> started = server.start();
  ASSERT_TRUE(started) << error_of(started);
  Http2Client client(server.address(), 0);
  const auto begin = [&](std::string_view bytes) {
    return client.begin("POST", "/test.Raw/Converse", {{"content-type", "application/grpc"}, {"te", "trailers"}},
                        {grpc_message(bytes)}, false);
  };
  // Their items exceed the mark.
  for (int i = 0; i < 6; ++i) begin(std::string(64 * 1024, 'x'));
  EXPECT_TRUE(client.until([&] { return raw_handlers_running() == 6 && client.responses.size() > 4; }));
  const std::int32_t read = begin("first");
  client.open_window(read, 100);
  EXPECT_TRUE(client.until([&] { return client.responses[read].body == grpc_message("first"); }));
}

}  // namespace
}  // namespace hawser
