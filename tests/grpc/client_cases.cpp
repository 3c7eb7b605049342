#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/grpc_client.h"
#include "hawser/hawser.h"
#include "hawser/interceptor.h"
#include "hawser/retry.h"
#include "tests/grpc/raw_stubs.h"
#include "tests/python_process.h"
#include "tests/skipped_calls.h"
#include "tests/testing.h"

// The client of gRPC, against grpcio's server and against Hawser's.
namespace hawser {
namespace {

using namespace testing_tools;

// A server of one of the two kinds.
class Peer {
 public:
  virtual ~Peer() = default;
  std::string address;
  std::string missing;  // The reason why there is no server.
};

class OwnPeer final : public Peer {
 public:
  OwnPeer() {
    register_raw_service(server_);
    server_.enable(grpc());
    EXPECT_TRUE(server_.start());
    address = server_.address();
  }

 private:
  Server server_;
};

class GrpcioPeer final : public Peer {
 public:
  GrpcioPeer() : process_(std::filesystem::path(__FILE__).parent_path() / "server.py", "") {
    if (const int port = process_.listening_port(); port != 0) {
      address = "127.0.0.1:" + std::to_string(port);
    } else if (const int status = process_.wait(); status == testing_tools::PythonProcess::skipped) {
      missing = process_.output;
    } else {
      ADD_FAILURE() << "server.py ended with status " << status << ": " << process_.output;
    }
  }

 private:
  testing_tools::PythonProcess process_;
};

class GrpcCalls : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string_view("Grpcio")) {
      peer_ = std::make_unique<GrpcioPeer>();
    } else {
      peer_ = std::make_unique<OwnPeer>();
    }
    if (!peer_->missing.empty()) GTEST_SKIP() << peer_->missing;
    ASSERT_NE(peer_->address, "");
  }
  // Runs `work` with a connected client.
  void with_client(const std::function<Task<void>(GrpcClient&)>& work, GrpcClientOptions options = {}) {
    options.call_timeout = patience;
    Loop loop;
    GrpcClient client(loop, std::move(options));
    loop.run(
        [](GrpcClient& used, std::string address, const std::function<Task<void>(GrpcClient&)>& run) -> Task<void> {
          auto connected = co_await used.connect(address);
          EXPECT_TRUE(connected) << error_of(connected);
          if (!connected) co_return;
          co_await run(used);
        }(client, peer_->address, work));
    EXPECT_EQ(client.calls_in_flight(), 0U);
  }

 private:
  std::unique_ptr<Peer> peer_;
};

Task<void> unary(GrpcClient& client) {
  for (const std::size_t size : {0UZ, 1UZ, 1000UZ, 16'384UZ, 100'000UZ, 3'000'000UZ}) {
    const Raw message{text_of(size)};
    auto reply = co_await client.call<&remote::echo>(message);
    REQUIRE(reply.has_value());
    EXPECT_EQ(reply->bytes == message.bytes, true) << size;
  }
  auto whole = co_await client.call<&remote::echo>(Raw{"whole"});
  EXPECT_EQ(whole->bytes, "whole");
}

Task<void> one_call(GrpcClient& client, int i, int& done) {
  const Raw message{std::to_string(i)};
  auto reply = co_await client.call<&remote::echo>(message);
  EXPECT_TRUE(reply) << error_of(reply);
  if (reply) {
    EXPECT_EQ(reply->bytes, message.bytes);
  }
  ++done;
}

TEST(GrpcSkipped, InterceptorsThatSkipCallsSeeTheirEnds) {
  const SkipsAll skips;
  Server server({.listen = "127.0.0.1:0"});
  server.use(skips);
  register_raw_service(server);
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  loop.run([](Loop& here, std::string address) -> Task<void> {
    GrpcClient client(here, {.call_timeout = patience});
    auto connected = co_await client.connect(std::move(address));
    REQUIRE_OK(connected);
    const Raw text{"abc"};
    auto same = co_await client.call<&remote::echo>(text);  // Answered at once.
    EXPECT_OK(same);
    const Raw status{"05no such thing"};
    auto failed = co_await client.call<&remote::fail>(status);
    EXPECT_FALSE(failed);
    auto stream = co_await client.open<&remote::sum>();
    REQUIRE_OK(stream);
    const Raw number{"7"};
    auto written = co_await stream->writer().write(number);
    EXPECT_OK(written);
    auto total = co_await stream->finish();
    EXPECT_OK(total);
  }(loop, server.address()));
  const std::vector<std::string> lines = skips.take("grpc");
  ASSERT_GE(lines.size(), 1U);
  EXPECT_EQ(lines[0], "grpc test.Raw/Fail: no such thing");
  // The answer to a stream comes later than its beginning, or not: the parts may arrive together.
  ASSERT_LE(lines.size(), 2U);
  if (lines.size() == 2) {
    EXPECT_TRUE(lines[1].starts_with("grpc test.Raw/Sum: result of ")) << lines[1];
  }
}

// A server of either kind sees the metadata of an interceptor, which sees that of the reply.
Task<void> intercepted(GrpcClient& client) {
  int seen = 0;
  client.use([&seen](OutgoingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_EQ(call.protocol(), "grpc");
    EXPECT_EQ(call.method(), "test.Raw/Echo");
    EXPECT_FALSE(call.peer().empty());
    call.set_metadata("echo-who", "interceptor");
    Result<void> outcome = co_await next();
    EXPECT_EQ(call.reply_metadata().find("echo-who"), "interceptor");
    ++seen;
    co_return outcome;
  });
  const Raw message{"around"};
  auto reply = co_await client.call<&remote::echo>(message);
  EXPECT_TRUE(reply) << error_of(reply);
  EXPECT_EQ(seen, 1);
}

Task<void> many(GrpcClient& client) {
  int done = 0;
  Scope scope;
  for (int i = 0; i < 500; ++i) scope.spawn(one_call(client, i, done));
  auto all = co_await eventually(*Loop::current(), [&] { return done == 500; });
  EXPECT_TRUE(all);
}

Task<void> streams(GrpcClient& client) {
  {
    auto call = co_await client.open<&remote::count>(Raw{"120"});
    REQUIRE(call.has_value());
    auto reader = call->reader();
    for (int i = 0; i < 120; ++i) {
      auto item = co_await reader.next();
      REQUIRE(item.has_value() && item->has_value());
      EXPECT_EQ((*item)->bytes.size(), static_cast<std::size_t>(i % 50 * 1000));
    }
    auto last = co_await reader.next();
    EXPECT_TRUE(last && !*last);
    auto result = co_await call->finish();
    EXPECT_TRUE(result) << error_of(result);
  }
  {
    auto call = co_await client.open<&remote::sum>();
    REQUIRE(call.has_value());
    auto writer = call->writer();
    for (int i = 0; i < 1000; ++i) {
      const Raw item{std::string(10'000, 'x')};
      auto written = co_await writer.write(item);
      REQUIRE(written.has_value());
    }
    auto result = co_await call->finish();
    EXPECT_TRUE(result) << error_of(result);
    if (result) {
      EXPECT_EQ(result->bytes, "1000 10000000");
    }
  }
  {
    auto call = co_await client.open<&remote::converse>();
    REQUIRE(call.has_value());
    auto writer = call->writer();
    auto reader = call->reader();
    for (int i = 0; i < 100; ++i) {
      const Raw number{std::to_string(i)};
      auto written = co_await writer.write(number);
      REQUIRE(written.has_value());
      auto item = co_await reader.next();
      REQUIRE(item.has_value() && item->has_value());
      EXPECT_EQ((*item)->bytes, std::to_string(i));
    }
    writer.end();
    auto last = co_await reader.next();
    EXPECT_TRUE(last && !*last);
    auto result = co_await call->finish();
    EXPECT_TRUE(result) << error_of(result);
  }
}

Task<int> running(GrpcClient& client) {
  auto reply = co_await client.call<&remote::running>(Raw{});
  co_return reply ? std::stoi(reply->bytes) : -1;
}
Task<bool> until_running(GrpcClient& client, int wanted) {
  for (int i = 0; i < 5000; ++i) {
    auto now = co_await running(client);
    if (now == wanted) co_return true;
    co_await Loop::current()->sleep(1ms);
  }
  ADD_FAILURE() << "the number of running handlers does not become " << wanted;
  co_return false;
}

Task<void> deadline_and_cancellation(GrpcClient& client) {
  CallOptions brief{.timeout = 20ms};
  auto late = co_await client.call<&remote::sleep>(brief, Raw{});
  EXPECT_TRUE(is_error(late, ErrorCode::deadline_exceeded, ""));
  auto none = co_await until_running(client, 0);
  EXPECT_TRUE(none);
  std::stop_source stop;
  CallOptions stoppable;
  stoppable.token = stop.get_token();
  Scope scope;
  bool ended = false;
  scope.spawn([](GrpcClient& used, CallOptions options, bool& end) -> Task<void> {
    auto reply = co_await used.call<&remote::sleep>(options, Raw{});
    EXPECT_TRUE(is_error(reply, ErrorCode::cancelled, ""));
    end = true;
  }(client, stoppable, ended));
  auto one = co_await until_running(client, 1);
  EXPECT_TRUE(one);
  stop.request_stop();
  auto over = co_await eventually(*Loop::current(), [&] { return ended; });
  EXPECT_TRUE(over);
  auto again = co_await until_running(client, 0);
  EXPECT_TRUE(again);
  {
    // A stream that is dropped is cancelled.
    auto call = co_await client.open<&remote::converse>();
    REQUIRE(call.has_value());
    auto writer = call->writer();
    const Raw text{"first"};
    auto written = co_await writer.write(text);
    auto reader = call->reader();
    auto item = co_await reader.next();
    EXPECT_TRUE(item && *item);
  }
  auto end = co_await until_running(client, 0);
  EXPECT_TRUE(end);
}

Task<void> errors(GrpcClient& client) {
  for (int status = 1; status <= 16; ++status) {
    const Raw request{(status < 10 ? "0" : "") + std::to_string(status) + "text \xE2\x98\xBA 100 %"};
    auto reply = co_await client.call<&remote::fail>(request);
    REQUIRE(!reply.has_value());
    EXPECT_EQ(reply.error().text, "text \xE2\x98\xBA 100 %");
    const ErrorCode expected = status == 1   ? ErrorCode::cancelled
                               : status == 4 ? ErrorCode::deadline_exceeded
                                             : ErrorCode::application;
    EXPECT_TRUE(reply.error().code == expected || (status == 12 && reply.error().code == ErrorCode::unknown_method))
        << reply.error().describe();
    if (reply.error().code == ErrorCode::application) {
      EXPECT_EQ(reply.error().application_code, status);
    }
  }
  auto unknown = co_await client.call<&remote::nothing>(Raw{});
  EXPECT_TRUE(is_error(unknown, ErrorCode::unknown_method, ""));
  auto call = co_await client.open<&remote::converse>();
  REQUIRE(call.has_value());
  auto writer = call->writer();
  const Raw item{"fail"};
  auto written = co_await writer.write(item);
  auto result = co_await call->finish();
  EXPECT_TRUE(is_error(result, ErrorCode::application, "as the client wants"));
  CallOptions attached;
  attached.attachment = as_bytes("attachment");
  auto refused = co_await client.call<&remote::echo>(attached, Raw{});
  EXPECT_TRUE(is_error(refused, ErrorCode::invalid_argument, "attachment"));
  CallOptions named;
  named.metadata = {{"Upper Case", "x"}};
  auto misnamed = co_await client.call<&remote::echo>(named, Raw{});
  EXPECT_TRUE(is_error(misnamed, ErrorCode::invalid_argument, "Upper Case"));
}

Task<void> metadata(GrpcClient& client) {
  CallOptions options;
  options.metadata = {{"echo-initial", "first"}, {"echo-text", "plain"}, {"echo-bytes-bin", std::string("\0\xFF,", 3)}};
  auto reply = co_await client.call<&remote::echo>(options, Raw{"hello"}).reply();
  REQUIRE(reply.has_value());
  EXPECT_EQ(reply->value().bytes, "hello");
  EXPECT_EQ(reply->metadata().find("echo-initial").value_or("none"), "first");
  EXPECT_EQ(reply->metadata().find("echo-text").value_or("none"), "plain");
  EXPECT_EQ(reply->metadata().find("echo-bytes-bin").value_or("none"), std::string("\0\xFF,", 3));
}

Task<void> outcomes(GrpcClient& client) {
  const std::string details("\0details\xFF", 9);
  auto failed = co_await client.call<&remote::fail>(Raw{"09text"}).with_outcome();
  EXPECT_FALSE(failed.result);
  EXPECT_EQ(failed.outcome.status, 9);
  EXPECT_EQ(failed.outcome.details, details);
  if (!failed.result) {
    EXPECT_FALSE(failed.result.error().retry_after);
  }
  CallOptions options;
  options.metadata = {{"echo-text", "plain"}};
  auto good = co_await client.call<&remote::echo>(options, Raw{"hello"}).with_outcome();
  EXPECT_TRUE(good.result) << error_of(good.result);
  EXPECT_EQ(good.outcome.status, 0);
  EXPECT_EQ(std::count(good.outcome.metadata.begin(), good.outcome.metadata.end(), options.metadata.front()), 1);
  EXPECT_EQ(failed.outcome.details, details) << "a later call fills its own";
  // A call that is refused here, or given up, leaves nothing behind.
  CallOptions attached;
  attached.attachment = as_bytes("attachment");
  auto unsent = co_await client.call<&remote::echo>(attached, Raw{}).with_outcome();
  EXPECT_FALSE(unsent.result);
  EXPECT_EQ(unsent.outcome.status, -1);
  auto next = co_await client.call<&remote::echo>(Raw{"next"});
  EXPECT_TRUE(next) << error_of(next);
  CallOptions brief{.timeout = 1ms};
  auto slept = co_await client.call<&remote::sleep>(brief, Raw{}).with_outcome();
  EXPECT_FALSE(slept.result);
  EXPECT_TRUE(slept.outcome.status == -1 || slept.outcome.status == 4) << slept.outcome.status;
  auto none = co_await until_running(client, 0);
  EXPECT_TRUE(none);
}

Task<void> compressed_reply(GrpcClient& client) {
  const Raw message{std::string(200'000, 'c')};
  CallOptions options;
  options.metadata = {{"compress-reply", "gzip"}};
  auto reply = co_await client.call<&remote::echo>(options, message);
  EXPECT_TRUE(reply) << error_of(reply);
  if (reply) {
    EXPECT_EQ(reply->bytes == message.bytes, true);
  }
}

TEST_P(GrpcCalls, WithInterceptors) { with_client(&intercepted); }
TEST_P(GrpcCalls, Unary) { with_client(&unary); }
TEST_P(GrpcCalls, Many) { with_client(&many); }
TEST_P(GrpcCalls, Streams) { with_client(&streams); }
TEST_P(GrpcCalls, StreamsWithSmallWindows) {
  with_client(&streams, {.stream_window_bytes = 65'535, .connection_window_bytes = 65'535});
}
TEST_P(GrpcCalls, DeadlineAndCancellation) { with_client(&deadline_and_cancellation); }
TEST_P(GrpcCalls, Errors) { with_client(&errors); }
TEST_P(GrpcCalls, Metadata) { with_client(&metadata); }
TEST_P(GrpcCalls, Outcomes) { with_client(&outcomes); }
TEST_P(GrpcCalls, Compression) {
  with_client(&compressed_reply);
  with_client(&unary, {.compression = GrpcCompression::gzip});
}
TEST_P(GrpcCalls, TooLargeReply) {
  with_client(
      [](GrpcClient& client) -> Task<void> {
        auto reply = co_await client.call<&remote::echo>(Raw{text_of(200'000)});
        EXPECT_TRUE(is_error(reply, ErrorCode::limit_exceeded, "message_bytes_max"));
        auto next = co_await client.call<&remote::echo>(Raw{"small"});
        EXPECT_TRUE(next) << error_of(next);
      },
      {.message_bytes_max = 100'000});
}

TEST_P(GrpcCalls, CloseEndsCallsInFlight) {
  with_client([](GrpcClient& client) -> Task<void> {
    Scope scope;
    bool ended = false;
    scope.spawn([](GrpcClient& used, bool& end) -> Task<void> {
      auto reply = co_await used.call<&remote::sleep>(Raw{});
      EXPECT_TRUE(is_error(reply, ErrorCode::outcome_unknown, "closed"));
      end = true;
    }(client, ended));
    auto one = co_await until_running(client, 1);
    EXPECT_TRUE(one);
    client.close();
    auto over = co_await eventually(*Loop::current(), [&] { return ended; });
    EXPECT_TRUE(over);
    auto refused = co_await client.call<&remote::echo>(Raw{});
    EXPECT_TRUE(is_error(refused, ErrorCode::not_sent, "closed"));
  });
}

// A call whose deadline passes while it waits for the server's MAX_CONCURRENT_STREAMS frees its place.
// The server has ended the stream long before its items are read, and more than a window of them waits.
TEST(GrpcClientStreams, AreReadToTheirEndAfterTheServerHasEndedThem) {
  OwnPeer peer;
  Loop loop;
  loop.run([](Loop& here, std::string address) -> Task<void> {
    GrpcClientOptions options;
    options.stream_window_bytes = 65'535;
    GrpcClient client(here, options);
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    const Raw most{"15"};  // 105,000 bytes.
    auto call = co_await client.open<remote::count>(most);
    REQUIRE_OK(call);
    auto reader = call->reader();
    co_await here.sleep(50ms);
    for (std::size_t i = 0; i < 15; ++i) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      REQUIRE(item->has_value());
      EXPECT_EQ((*item)->bytes.size(), i * 1000);
    }
    auto end = co_await reader.next();
    REQUIRE_OK(end);
    EXPECT_FALSE(end->has_value());
    auto ended = co_await call->finish();
    EXPECT_OK(ended);
  }(loop, peer.address));
}

// Streams whose server does not read them hold more than the mark. Other streams and calls of the connection go on, as
// long as the requests alone are below it.
TEST(GrpcClientStreams, StreamsThatTheServerDoesNotReadDoNotStopTheOthers) {
  Server server;
  register_raw_service(server);
  server.enable(grpc({.stream_window_bytes = 65'535}));
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop, {.send_backlog_bytes_max = 256 * 1024});
  const auto work = [](GrpcClient& used, std::string address) -> Task<void> {
    auto connected = co_await used.connect(address);
    REQUIRE_OK(connected);
    const CallOptions limit{.timeout = 60s};  // Detects a hang.
    const Raw item{std::string(100'000, 'x')};
    std::vector<StreamingCall<&remote::hold>> held;
    for (int i = 0; i < 5; ++i) {
      auto opened = co_await used.open<&remote::hold>(limit);
      REQUIRE_OK(opened);
      auto writer = opened->writer();
      for (int k = 0; k < 2; ++k) {
        auto written = co_await writer.write(item);
        REQUIRE_OK(written);
      }
      held.push_back(std::move(*opened));
    }
    auto stream = co_await used.open<&remote::converse>(limit);
    REQUIRE_OK(stream);
    auto writer = stream->writer();
    auto written = co_await writer.write(item);
    REQUIRE_OK(written);
    auto reader = stream->reader();
    auto echoed = co_await reader.next();
    REQUIRE(echoed && *echoed && (*echoed)->bytes == item.bytes);
    auto reply = co_await used.call<&remote::echo>(limit, item);
    EXPECT_TRUE(reply) << error_of(reply);
    auto ended = co_await stream->finish();
    EXPECT_TRUE(ended) << error_of(ended);
  };
  loop.run(work(client, server.address()));
}

TEST(GrpcClientQueue, CallsThatTimeOutWhileTheyWaitForAStreamFreeTheirSlots) {
  Server server;
  register_raw_service(server);
  server.enable(grpc({.calls_max = 1}));
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop, {.calls_in_flight_max = 2});
  const auto work = [](GrpcClient& used, std::string address) -> Task<void> {
    auto connected = co_await used.connect(address);
    REQUIRE(connected.has_value());
    auto first = co_await used.call<&remote::echo>(Raw{"the server's SETTINGS have arrived with the reply"});
    REQUIRE(first.has_value());
    auto stream = co_await used.open<&remote::converse>();
    REQUIRE(stream.has_value());
    auto writer = stream->writer();
    auto reader = stream->reader();
    const Raw item{"item"};
    auto written = co_await writer.write(item);
    auto echoed = co_await reader.next();
    REQUIRE(echoed && *echoed);
    for (int i = 0; i < 10; ++i) {
      CallOptions brief{.timeout = 1ms};
      auto late = co_await used.call<&remote::echo>(brief, Raw{"late"});
      EXPECT_TRUE(is_error(late, ErrorCode::deadline_exceeded, ""));
      EXPECT_EQ(used.calls_in_flight(), 1U);
    }
    auto ended = co_await stream->finish();
    EXPECT_TRUE(ended) << error_of(ended);
    auto next = co_await used.call<&remote::echo>(Raw{"next"});
    EXPECT_TRUE(next) << error_of(next);
  };
  loop.run(work(client, server.address()));
}

// Retries wait as the server asks, and count the attempts for it.
TEST(GrpcRetries, FollowThePushbackOfTheServer) {
  Server server;
  register_raw_service(server);
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  const auto work = [](GrpcClient& used, std::string address) -> Task<void> {
    auto connected = co_await used.connect(address);
    REQUIRE(connected.has_value());
    RetryPolicy policy;
    policy.attempts_max = 4;
    policy.backoff_first = policy.backoff_max = std::chrono::hours(1);  // The pushback goes before it.
    policy.application_codes = {14};
    Retrying retrying(used, policy);
    CallOptions idempotent{.timeout = patience, .idempotent = true};
    const Raw third{"2"};
    auto reply = co_await retrying.call<&remote::succeed_at>(idempotent, third);
    EXPECT_TRUE(reply) << error_of(reply);
    const Raw never{"never"};
    auto forbidden = co_await retrying.call<&remote::succeed_at>(idempotent, never);
    EXPECT_TRUE(is_error(forbidden, ErrorCode::application, "not yet"));
    if (!forbidden) {
      EXPECT_EQ(forbidden.error().text, "not yet") << "there was one attempt";
    }
    CallOptions once{.timeout = patience};
    auto not_idempotent = co_await retrying.call<&remote::succeed_at>(once, third);
    EXPECT_TRUE(is_error(not_idempotent, ErrorCode::application, "not yet"));
    auto failed = co_await used.call<&remote::succeed_at>(third).with_outcome();
    REQUIRE(!failed.result);
    EXPECT_EQ(failed.result.error().retry_after.value_or(Duration::zero()), Duration(1ms));
    EXPECT_EQ(failed.outcome.details, "earlier attempts: 0");
    // Through the retries, the outcome is that of the last attempt.
    auto repeated = co_await retrying.call<&remote::succeed_at>(idempotent, never).with_outcome();
    EXPECT_EQ(repeated.outcome.details, "earlier attempts: 0");
    auto third_time = co_await retrying.call<&remote::succeed_at>(idempotent, third).with_outcome();
    EXPECT_EQ(third_time.outcome.status, 0);
  };
  loop.run(work(client, server.address()));
}

INSTANTIATE_TEST_SUITE_P(Peers, GrpcCalls, ::testing::Values("Hawser", "Grpcio"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace hawser
