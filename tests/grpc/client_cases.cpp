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
          AWAIT(connected, used.connect(address));
          EXPECT_TRUE(connected) << error_of(connected);
          if (!connected) co_return;
          auto working = run(used);
          co_await std::move(working);
        }(client, peer_->address, work));
    EXPECT_EQ(client.calls_in_flight(), 0U);
  }

 private:
  std::unique_ptr<Peer> peer_;
};

Task<void> unary(GrpcClient& client) {
  for (const std::size_t size : {0UZ, 1UZ, 1000UZ, 16'384UZ, 100'000UZ, 3'000'000UZ}) {
    const Raw message{text_of(size)};
    AWAIT(reply, client.call<&remote::echo>(message));
    REQUIRE(reply.has_value());
    EXPECT_EQ(reply->bytes == message.bytes, true) << size;
  }
  AWAIT(whole, client.call<&remote::echo>(Raw{"whole"}));
  EXPECT_EQ(whole->bytes, "whole");
}

Task<void> one_call(GrpcClient& client, int i, int& done) {
  const Raw message{std::to_string(i)};
  AWAIT(reply, client.call<&remote::echo>(message));
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
    AWAIT(connected, client.connect(std::move(address)));
    REQUIRE_OK(connected);
    const Raw text{"abc"};
    AWAIT(same, client.call<&remote::echo>(text));  // Answered at once.
    EXPECT_OK(same);
    const Raw status{"05no such thing"};
    AWAIT(failed, client.call<&remote::fail>(status));
    EXPECT_FALSE(failed);
    AWAIT(stream, client.open<&remote::sum>());
    REQUIRE_OK(stream);
    const Raw number{"7"};
    AWAIT(written, stream->writer().write(number));
    EXPECT_OK(written);
    AWAIT(total, stream->finish());
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
    auto rest = next();
    Result<void> outcome = co_await std::move(rest);
    EXPECT_EQ(call.reply_metadata().find("echo-who"), "interceptor");
    ++seen;
    co_return outcome;
  });
  const Raw message{"around"};
  AWAIT(reply, client.call<&remote::echo>(message));
  EXPECT_TRUE(reply) << error_of(reply);
  EXPECT_EQ(seen, 1);
}

Task<void> many(GrpcClient& client) {
  int done = 0;
  Scope scope;
  for (int i = 0; i < 500; ++i) scope.spawn(one_call(client, i, done));
  AWAIT(all, eventually(*Loop::current(), [&] { return done == 500; }));
  EXPECT_TRUE(all);
}

Task<void> streams(GrpcClient& client) {
  {
    AWAIT(call, client.open<&remote::count>(Raw{"120"}));
    REQUIRE(call.has_value());
    auto reader = call->reader();
    for (int i = 0; i < 120; ++i) {
      AWAIT(item, reader.next());
      REQUIRE(item.has_value() && item->has_value());
      EXPECT_EQ((*item)->bytes.size(), static_cast<std::size_t>(i % 50 * 1000));
    }
    AWAIT(last, reader.next());
    EXPECT_TRUE(last && !*last);
    AWAIT(result, call->finish());
    EXPECT_TRUE(result) << error_of(result);
  }
  {
    AWAIT(call, client.open<&remote::sum>());
    REQUIRE(call.has_value());
    auto writer = call->writer();
    for (int i = 0; i < 1000; ++i) {
      const Raw item{std::string(10'000, 'x')};
      AWAIT(written, writer.write(item));
      REQUIRE(written.has_value());
    }
    AWAIT(result, call->finish());
    EXPECT_TRUE(result) << error_of(result);
    if (result) {
      EXPECT_EQ(result->bytes, "1000 10000000");
    }
  }
  {
    AWAIT(call, client.open<&remote::converse>());
    REQUIRE(call.has_value());
    auto writer = call->writer();
    auto reader = call->reader();
    for (int i = 0; i < 100; ++i) {
      const Raw number{std::to_string(i)};
      AWAIT(written, writer.write(number));
      REQUIRE(written.has_value());
      AWAIT(item, reader.next());
      REQUIRE(item.has_value() && item->has_value());
      EXPECT_EQ((*item)->bytes, std::to_string(i));
    }
    writer.end();
    AWAIT(last, reader.next());
    EXPECT_TRUE(last && !*last);
    AWAIT(result, call->finish());
    EXPECT_TRUE(result) << error_of(result);
  }
}

Task<int> running(GrpcClient& client) {
  AWAIT(reply, client.call<&remote::running>(Raw{}));
  co_return reply ? std::stoi(reply->bytes) : -1;
}
Task<bool> until_running(GrpcClient& client, int wanted) {
  for (int i = 0; i < 5000; ++i) {
    AWAIT(now, running(client));
    if (now == wanted) co_return true;
    auto pause = Loop::current()->sleep(1ms);
    co_await pause;
  }
  ADD_FAILURE() << "the number of running handlers does not become " << wanted;
  co_return false;
}

Task<void> deadline_and_cancellation(GrpcClient& client) {
  CallOptions brief{.timeout = 20ms};
  AWAIT(late, client.call<&remote::sleep>(brief, Raw{}));
  EXPECT_TRUE(is_error(late, ErrorCode::deadline_exceeded, ""));
  AWAIT(none, until_running(client, 0));
  EXPECT_TRUE(none);
  std::stop_source stop;
  CallOptions stoppable;
  stoppable.token = stop.get_token();
  Scope scope;
  bool ended = false;
  scope.spawn([](GrpcClient& used, CallOptions options, bool& end) -> Task<void> {
    AWAIT(reply, used.call<&remote::sleep>(options, Raw{}));
    EXPECT_TRUE(is_error(reply, ErrorCode::cancelled, ""));
    end = true;
  }(client, stoppable, ended));
  AWAIT(one, until_running(client, 1));
  EXPECT_TRUE(one);
  stop.request_stop();
  AWAIT(over, eventually(*Loop::current(), [&] { return ended; }));
  EXPECT_TRUE(over);
  AWAIT(again, until_running(client, 0));
  EXPECT_TRUE(again);
  {
    // A stream that is dropped is cancelled.
    AWAIT(call, client.open<&remote::converse>());
    REQUIRE(call.has_value());
    auto writer = call->writer();
    const Raw text{"first"};
    AWAIT(written, writer.write(text));
    auto reader = call->reader();
    AWAIT(item, reader.next());
    EXPECT_TRUE(item && *item);
  }
  AWAIT(end, until_running(client, 0));
  EXPECT_TRUE(end);
}

Task<void> errors(GrpcClient& client) {
  for (int status = 1; status <= 16; ++status) {
    const Raw request{(status < 10 ? "0" : "") + std::to_string(status) + "text \xE2\x98\xBA 100 %"};
    AWAIT(reply, client.call<&remote::fail>(request));
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
  AWAIT(unknown, client.call<&remote::nothing>(Raw{}));
  EXPECT_TRUE(is_error(unknown, ErrorCode::unknown_method, ""));
  AWAIT(call, client.open<&remote::converse>());
  REQUIRE(call.has_value());
  auto writer = call->writer();
  const Raw item{"fail"};
  AWAIT(written, writer.write(item));
  AWAIT(result, call->finish());
  EXPECT_TRUE(is_error(result, ErrorCode::application, "as the client wants"));
  CallOptions attached;
  attached.attachment = as_bytes("attachment");
  AWAIT(refused, client.call<&remote::echo>(attached, Raw{}));
  EXPECT_TRUE(is_error(refused, ErrorCode::invalid_argument, "attachment"));
  CallOptions named;
  named.metadata = {{"Upper Case", "x"}};
  AWAIT(misnamed, client.call<&remote::echo>(named, Raw{}));
  EXPECT_TRUE(is_error(misnamed, ErrorCode::invalid_argument, "Upper Case"));
}

Task<void> metadata(GrpcClient& client) {
  CallOptions options;
  options.metadata = {{"echo-initial", "first"}, {"echo-text", "plain"}, {"echo-bytes-bin", std::string("\0\xFF,", 3)}};
  AWAIT(reply, client.call<&remote::echo>(options, Raw{"hello"}).reply());
  REQUIRE(reply.has_value());
  EXPECT_EQ(reply->value().bytes, "hello");
  EXPECT_EQ(reply->metadata().find("echo-initial").value_or("none"), "first");
  EXPECT_EQ(reply->metadata().find("echo-text").value_or("none"), "plain");
  EXPECT_EQ(reply->metadata().find("echo-bytes-bin").value_or("none"), std::string("\0\xFF,", 3));
}

Task<void> outcomes(GrpcClient& client) {
  const std::string details("\0details\xFF", 9);
  const auto failed = client.report_next();
  AWAIT(reply, client.call<&remote::fail>(Raw{"09text"}));
  EXPECT_FALSE(reply);
  EXPECT_EQ(failed->status, 9);
  EXPECT_EQ(failed->details, details);
  EXPECT_FALSE(failed->retry_after);
  CallOptions options;
  options.metadata = {{"echo-text", "plain"}};
  const auto good = client.report_next();
  AWAIT(echoed, client.call<&remote::echo>(options, Raw{"hello"}));
  EXPECT_TRUE(echoed) << error_of(echoed);
  EXPECT_EQ(good->status, 0);
  EXPECT_EQ(std::count(good->metadata.begin(), good->metadata.end(), options.metadata.front()), 1);
  EXPECT_EQ(failed->details, details) << "a later call fills its own";
  // A call that is refused here, or given up, leaves nothing behind.
  const auto refused = client.report_next();
  CallOptions attached;
  attached.attachment = as_bytes("attachment");
  AWAIT(unsent, client.call<&remote::echo>(attached, Raw{}));
  EXPECT_FALSE(unsent);
  EXPECT_EQ(refused->status, -1);
  static_cast<void>(client.report_next());  // Nobody keeps it until the call.
  AWAIT(next, client.call<&remote::echo>(Raw{"next"}));
  EXPECT_TRUE(next) << error_of(next);
  const auto late = client.report_next();
  CallOptions brief{.timeout = 1ms};
  AWAIT(slept, client.call<&remote::sleep>(brief, Raw{}));
  EXPECT_FALSE(slept);
  EXPECT_TRUE(late->status == -1 || late->status == 4) << late->status;
  AWAIT(none, until_running(client, 0));
  EXPECT_TRUE(none);
}

Task<void> compressed_reply(GrpcClient& client) {
  const Raw message{std::string(200'000, 'c')};
  CallOptions options;
  options.metadata = {{"compress-reply", "gzip"}};
  AWAIT(reply, client.call<&remote::echo>(options, message));
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
        AWAIT(reply, client.call<&remote::echo>(Raw{text_of(200'000)}));
        EXPECT_TRUE(is_error(reply, ErrorCode::limit_exceeded, "message_bytes_max"));
        AWAIT(next, client.call<&remote::echo>(Raw{"small"}));
        EXPECT_TRUE(next) << error_of(next);
      },
      {.message_bytes_max = 100'000});
}

TEST_P(GrpcCalls, CloseEndsCallsInFlight) {
  with_client([](GrpcClient& client) -> Task<void> {
    Scope scope;
    bool ended = false;
    scope.spawn([](GrpcClient& used, bool& end) -> Task<void> {
      AWAIT(reply, used.call<&remote::sleep>(Raw{}));
      EXPECT_TRUE(is_error(reply, ErrorCode::outcome_unknown, "closed"));
      end = true;
    }(client, ended));
    AWAIT(one, until_running(client, 1));
    EXPECT_TRUE(one);
    client.close();
    AWAIT(over, eventually(*Loop::current(), [&] { return ended; }));
    EXPECT_TRUE(over);
    AWAIT(refused, client.call<&remote::echo>(Raw{}));
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
    AWAIT(connected, client.connect(address));
    REQUIRE_OK(connected);
    const Raw most{"15"};  // 105,000 bytes.
    AWAIT(call, client.open<remote::count>(most));
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto pause = here.sleep(50ms);
    co_await pause;
    for (std::size_t i = 0; i < 15; ++i) {
      AWAIT(item, reader.next());
      REQUIRE_OK(item);
      REQUIRE(item->has_value());
      EXPECT_EQ((*item)->bytes.size(), i * 1000);
    }
    AWAIT(end, reader.next());
    REQUIRE_OK(end);
    EXPECT_FALSE(end->has_value());
    AWAIT(ended, call->finish());
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
    AWAIT(connected, used.connect(address));
    REQUIRE_OK(connected);
    const CallOptions limit{.timeout = 60s};  // Detects a hang.
    const Raw item{std::string(100'000, 'x')};
    std::vector<StreamingCall<&remote::hold>> held;
    for (int i = 0; i < 5; ++i) {
      AWAIT(opened, used.open<&remote::hold>(limit));
      REQUIRE_OK(opened);
      auto writer = opened->writer();
      for (int k = 0; k < 2; ++k) {
        AWAIT(written, writer.write(item));
        REQUIRE_OK(written);
      }
      held.push_back(std::move(*opened));
    }
    AWAIT(stream, used.open<&remote::converse>(limit));
    REQUIRE_OK(stream);
    auto writer = stream->writer();
    AWAIT(written, writer.write(item));
    REQUIRE_OK(written);
    auto reader = stream->reader();
    AWAIT(echoed, reader.next());
    REQUIRE(echoed && *echoed && (*echoed)->bytes == item.bytes);
    AWAIT(reply, used.call<&remote::echo>(limit, item));
    EXPECT_TRUE(reply) << error_of(reply);
    AWAIT(ended, stream->finish());
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
    AWAIT(connected, used.connect(address));
    REQUIRE(connected.has_value());
    AWAIT(first, used.call<&remote::echo>(Raw{"the server's SETTINGS have arrived with the reply"}));
    REQUIRE(first.has_value());
    AWAIT(stream, used.open<&remote::converse>());
    REQUIRE(stream.has_value());
    auto writer = stream->writer();
    auto reader = stream->reader();
    const Raw item{"item"};
    AWAIT(written, writer.write(item));
    AWAIT(echoed, reader.next());
    REQUIRE(echoed && *echoed);
    for (int i = 0; i < 10; ++i) {
      CallOptions brief{.timeout = 1ms};
      AWAIT(late, used.call<&remote::echo>(brief, Raw{"late"}));
      EXPECT_TRUE(is_error(late, ErrorCode::deadline_exceeded, ""));
      EXPECT_EQ(used.calls_in_flight(), 1U);
    }
    AWAIT(ended, stream->finish());
    EXPECT_TRUE(ended) << error_of(ended);
    AWAIT(next, used.call<&remote::echo>(Raw{"next"}));
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
    AWAIT(connected, used.connect(address));
    REQUIRE(connected.has_value());
    RetryPolicy policy;
    policy.attempts_max = 4;
    policy.backoff_first = policy.backoff_max = std::chrono::hours(1);  // The pushback goes before it.
    policy.application_codes = {14};
    Retrying retrying(used, policy);
    CallOptions idempotent{.timeout = patience, .idempotent = true};
    const Raw third{"2"};
    AWAIT(reply, retrying.call<&remote::succeed_at>(idempotent, third));
    EXPECT_TRUE(reply) << error_of(reply);
    const Raw never{"never"};
    AWAIT(forbidden, retrying.call<&remote::succeed_at>(idempotent, never));
    EXPECT_TRUE(is_error(forbidden, ErrorCode::application, "not yet"));
    if (!forbidden) {
      EXPECT_EQ(forbidden.error().text, "not yet") << "there was one attempt";
    }
    CallOptions once{.timeout = patience};
    AWAIT(not_idempotent, retrying.call<&remote::succeed_at>(once, third));
    EXPECT_TRUE(is_error(not_idempotent, ErrorCode::application, "not yet"));
    const auto outcome = used.report_next();
    AWAIT(failed, used.call<&remote::succeed_at>(third));
    EXPECT_FALSE(failed);
    EXPECT_EQ(outcome->retry_after.value_or(Duration::zero()), Duration(1ms));
    EXPECT_EQ(outcome->details, "earlier attempts: 0");
  };
  loop.run(work(client, server.address()));
}

INSTANTIATE_TEST_SUITE_P(Peers, GrpcCalls, ::testing::Values("Hawser", "Grpcio"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace hawser
