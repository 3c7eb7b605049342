#include "protocol/resp/resp_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "pipe/test/scripted_stream.h"
#include "protocol/resp/test/request_text.h"
#include "rpc/port/health_state.h"
#include "rpc/port/port_host.h"

// The rules of a session, over a stream without a socket and a loop in virtual time.
namespace hawser::protocol::resp {
namespace {

// Replies to each request with its words. The test decides when it takes requests, and what waits.
class EchoSession final : public RespSession {
 public:
  EchoSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first, const RequestLimits& limits)
      : RespSession(host, std::move(stream), first, limits) {}
  using RespSession::account;
  using RespSession::resume;
  using RespSession::set_limits;

  std::vector<std::size_t> looked_ahead;
  std::vector<std::string> requests;
  std::string error;
  Error reason;
  std::size_t takes = 0;    // Number of calls of on_taken().
  std::size_t most = 1000;  // Takes so many requests.
  std::size_t held = 0;     // Bytes of replies that wait.
  std::size_t reply = 0;    // Bytes of each reply beside the words.

 private:
  void look_ahead(std::span<ReadyRequest> ahead) override { looked_ahead.push_back(ahead.size()); }
  void on_request(const ReadyRequest& request) override {
    std::string text;
    for (const std::string_view word : request.arguments()) text.append(text.empty() ? "" : " ").append(word);
    requests.push_back(text);
    out().bulk(text + std::string(reply, '.'));
  }
  void on_protocol_error(std::string_view text) override {
    error = text;
    out().error(text);
    close_after_replies();
  }
  bool idle() const noexcept override { return held == 0; }
  bool may_go_on() const noexcept override { return requests.size() < most; }
  void on_taken() override { ++takes; }
  std::size_t held_replies() const noexcept override { return held; }
  void on_end(const Error& why) override {
    reason = why;
    RespSession::on_end(why);
  }
};

struct SessionEnd final : detail::Posted {
  explicit SessionEnd(bool& done) noexcept : ended(done) {}
  void run() noexcept override { ended = true; }
  bool& ended;
};

class RespSessionTest : public testing::Test {
 protected:
  explicit RespSessionTest(std::size_t receive_bytes_max = std::size_t{1} << 20)
      : host_{.loop = loop_,
              .dispatcher = dispatcher_,
              .options = options_,
              .budget = {receive_bytes_max, receive_bytes_max},
              .interceptors = interceptors_,
              .calls_in_flight = calls_in_flight_,
              .methods = methods_,
              .health = health_} {}
  ~RespSessionTest() override {
    if (session_ != nullptr) session_->abort(Error::of_connection(ErrorCode::unavailable, "the test ends"));
    turn();
  }

  EchoSession& start(std::string_view first = {}, const RequestLimits& limits = {}) {
    session_ =
        std::make_unique<EchoSession>(host_, std::make_unique<pipe::ScriptedStream>(script_), as_bytes(first), limits);
    session_->start(std::make_unique<SessionEnd>(ended_), false);
    return *session_;
  }
  // Ends the tick, and runs what is due.
  void turn() {
    loop_.run([](Loop& loop) -> Task<void> { co_await loop.sleep(Duration::zero()); }(loop_));
  }
  std::string sent() {
    turn();
    return std::exchange(script_.sent, {});
  }

  pipe::StreamScript script_;
  Loop loop_{std::make_unique<exec::SimPoller>(), {}};
  rpc::Dispatcher dispatcher_;
  ServerOptions options_ = {.send_backlog_bytes_max = 4096};
  rpc::ServerInterceptors interceptors_;
  std::atomic<std::size_t> calls_in_flight_{0};
  rpc::MethodTable methods_{0};
  rpc::HealthState health_;
  rpc::PortHost host_;
  bool ended_ = false;
  std::unique_ptr<EchoSession> session_;
};

TEST_F(RespSessionTest, RequestsAreExecutedInOrderAndAnsweredAtTheEndOfTheTick) {
  EchoSession& session = start(request({"GET", "a"}) + "*2\r\n$3");
  EXPECT_EQ(session.requests, (std::vector<std::string>{"GET a"}));
  script_.deliver("\r\nGET\r\n$1\r\nb\r\nPING\r\n*0\r\n" + request({"GET", "c"}));
  EXPECT_EQ(session.requests, (std::vector<std::string>{"GET a", "GET b", "PING", "GET c"}));
  EXPECT_EQ(sent(), "$5\r\nGET a\r\n$5\r\nGET b\r\n$4\r\nPING\r\n$5\r\nGET c\r\n");
  EXPECT_EQ(host_.counters.calls.get(), 5U) << "an empty request counts";
}

// Requests that are found ahead are shown before they are executed, at most as many as the turn has left.
TEST_F(RespSessionTest, ATurnHasALimitOfRequests) {
  EchoSession& session = start();
  std::string text;
  for (int i = 0; i < 100; ++i) text += request({"GET", "a"});
  script_.deliver(text);
  EXPECT_EQ(session.looked_ahead, (std::vector<std::size_t>{16, 16, 16, 16, 16, 16, 4}));
  EXPECT_EQ(session.requests.size(), 100U);
  EXPECT_EQ(session.takes, 2U) << "64, and the rest";
  session.looked_ahead.clear();
  session.takes = 0;
  text.clear();
  for (int i = 0; i < 70; ++i) text += i % 10 == 9 ? "PING\r\n" : request({"GET", "a"});
  script_.deliver(text);
  EXPECT_EQ(session.looked_ahead, (std::vector<std::size_t>{9, 9, 9, 9, 9, 9, 4, 5}));
  EXPECT_EQ(session.takes, 2U);
}

TEST_F(RespSessionTest, NothingIsTakenWhileTheSessionMayNotGoOn) {
  EchoSession& session = start();
  session.most = 2;
  script_.deliver(request({"1"}) + request({"2"}) + request({"3"}) + "4\r\n5\r\n");
  EXPECT_EQ(session.requests.size(), 2U);
  session.most = 4;
  session.resume();
  EXPECT_EQ(session.requests, (std::vector<std::string>{"1", "2", "3", "4"}));
  session.most = 1000;
  session.resume();
  EXPECT_EQ(session.requests.back(), "5");
}

TEST_F(RespSessionTest, NothingIsTakenWhileTheClientDoesNotRead) {
  EchoSession& session = start();
  session.reply = 2500;
  script_.take = {0, 0, 0};
  std::string text;
  for (int i = 0; i < 5; ++i) text += request({"GET", std::to_string(i)});
  script_.deliver(text);
  EXPECT_LT(session.requests.size(), 5U);
  EXPECT_TRUE(script_.paused);
  script_.take.clear();
  script_.sink->sendable(0);
  turn();
  EXPECT_EQ(session.requests.size(), 5U);
  EXPECT_FALSE(script_.paused);
}

TEST_F(RespSessionTest, AProtocolErrorEndsTheSessionBehindItsReplies) {
  EchoSession& session = start();
  script_.deliver(request({"GET", "a"}) + "*x\r\n" + request({"GET", "b"}));
  EXPECT_EQ(session.requests.size(), 1U);
  EXPECT_EQ(session.error, "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(host_.counters.protocol_errors.get(), 1U);
  EXPECT_EQ(sent(), "$5\r\nGET a\r\n-ERR Protocol error: invalid multibulk length\r\n");
  EXPECT_TRUE(script_.finished);
  script_.deliver(request({"GET", "c"}));
  EXPECT_EQ(session.requests.size(), 1U) << "nothing more is taken";
}

TEST_F(RespSessionTest, LimitsHoldForBothWaysOfParsing) {
  EchoSession& session = start({}, {.bulk_bytes_max = 3});
  script_.deliver(request({"GET", "abc"}));
  EXPECT_EQ(session.requests.size(), 1U);
  session.set_limits({.bulk_bytes_max = 4});
  script_.deliver(request({"GET", "abcd"}));
  EXPECT_EQ(session.requests.size(), 2U);
  script_.deliver(request({"GET", "abcde"}));
  EXPECT_EQ(session.error, "ERR Protocol error: invalid bulk length");
}

TEST_F(RespSessionTest, GoesAwayWhenNoReplyWaits) {
  EchoSession& session = start(request({"GET", "a"}));
  session.held = 1;
  session.go_away();
  turn();
  EXPECT_FALSE(script_.finished);
  session.held = 0;
  session.go_away();
  EXPECT_EQ(sent(), "$5\r\nGET a\r\n");
  EXPECT_TRUE(script_.finished);
}

// A client may end its direction behind its last request.
TEST_F(RespSessionTest, RepliesFollowTheEndOfTheClient) {
  EchoSession& session = start();
  session.held = 1;
  script_.deliver(request({"GET", "a"}));
  EXPECT_TRUE(script_.sink->continues_after_end());
  turn();
  EXPECT_FALSE(script_.finished) << "a reply waits";
}

class RespSessionMemoryTest : public RespSessionTest {
 protected:
  RespSessionMemoryTest() : RespSessionTest(64 * 1024) {}
};

TEST_F(RespSessionMemoryTest, PositionsOfManyArgumentsAreCharged) {
  EchoSession& session = start();
  const std::size_t before = host_.budget.used();
  std::string line;
  for (int i = 0; i < 500; ++i) line += "a ";
  script_.deliver(line + "\r\n");
  ASSERT_EQ(session.requests.size(), 1U);
  EXPECT_GE(host_.budget.used() - before, 500 * (sizeof(std::string) + sizeof(std::string_view)));
  script_.deliver("PING\r\nPING\r\n");
  EXPECT_EQ(host_.budget.used(), before);
  line.clear();
  for (int i = 0; i < 5000; ++i) line += "a ";
  script_.deliver(line + "\r\n");
  EXPECT_EQ(session.requests.size(), 3U);
  EXPECT_EQ(session.reason.code, ErrorCode::overloaded) << session.reason.text;
  EXPECT_EQ(host_.budget.used(), 0U);
}

// Replies that the client does not read are charged above the limit of the backlog, and end the session when they
// become more without memory for them.
TEST_F(RespSessionMemoryTest, RepliesThatWaitAreCharged) {
  EchoSession& session = start();
  const std::size_t before = host_.budget.used();
  constexpr std::size_t queued = 7;  // Bytes of a reply.
  session.held = 4096 - queued;
  script_.deliver(request({"1"}));
  turn();
  EXPECT_EQ(host_.budget.used(), before);
  session.held = 5000;
  script_.deliver(request({"2"}));
  turn();
  EXPECT_EQ(host_.budget.used() - before, 5000 + queued - 4096);
  session.held = 70'000;
  script_.deliver(request({"3"}));
  EXPECT_EQ(session.reason.code, ErrorCode::overloaded);
  EXPECT_TRUE(session.reason.text.contains("the client has not read 700")) << session.reason.text;
  EXPECT_EQ(host_.budget.used(), 0U);
}

TEST_F(RespSessionMemoryTest, WithoutMemoryAsManyRepliesAsTheBacklogHoldsMayWait) {
  EchoSession& session = start();
  constexpr std::size_t all_memory = 64 * 1024;
  session.account().acquire_always(all_memory);
  session.held = 4096;
  script_.deliver(request({"1"}));
  EXPECT_EQ(session.reason.text, "");
  session.held = 4097;
  script_.deliver(request({"2"}));
  EXPECT_EQ(session.reason.code, ErrorCode::overloaded);
  session.account().release(all_memory);
}

TEST_F(RespSessionTest, LeavesWhenItIsQuietForASecond) {
  using namespace std::chrono_literals;
  const auto wait = [&](Duration time) {
    loop_.run([](Loop& loop, Duration of) -> Task<void> { co_await loop.sleep(of); }(loop_, time));
  };
  EchoSession& session = start(request({"GET", "a"}));
  sent();
  EXPECT_FALSE(session.leave());
  wait(999ms);
  EXPECT_FALSE(session.leave());
  script_.deliver(request({"GET", "b"}));
  sent();
  EXPECT_FALSE(session.leave()) << "bytes have come";
  session.held = 1;
  wait(2s);
  EXPECT_FALSE(session.leave()) << "a reply waits";
  session.held = 0;
  wait(1s);
  EXPECT_TRUE(session.leave());
  turn();
  EXPECT_TRUE(script_.finished);
}

TEST_F(RespSessionTest, IsNotSilentWhileARequestArrives) {
  const std::string whole = request({"GET", "a"});
  EchoSession& session = start();
  EXPECT_EQ(session.silent_checks(), 1U);
  for (const char& byte : std::string_view(whole).substr(0, 4)) {
    script_.deliver(std::string_view(&byte, 1));
    EXPECT_EQ(session.silent_checks(), 0U);
  }
  EXPECT_EQ(session.silent_checks(), 1U);
  EXPECT_EQ(session.silent_checks(), 2U);
}

}  // namespace
}  // namespace hawser::protocol::resp
