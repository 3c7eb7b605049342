#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/blocking_client.h"
#include "hawser/client_pool.h"
#include "hawser/interceptor.h"
#include "hawser/retry.h"
#include "hawser/scope.h"
#include "tests/interceptors/running_total.h"
#include "tests/testing.h"

// Interceptors of a client, of the library's own protocol.
namespace hawser::client_interceptors {

using namespace testing_tools;
using interceptors::running_total;

std::string greet(Context& context, std::string_view text) {
  context.add_metadata("from", "handler");
  return std::string(text) + "!" + std::string(context.metadata().find("who").value_or(""));
}
std::string_view same(std::string_view text) { return text; }

// Fails `failures_left` times with `failure`, and counts its runs.
int runs = 0;
int failures_left = 0;
ErrorCode failure = ErrorCode::overloaded;
Result<int> flaky() {
  ++runs;
  if (failures_left-- > 0) return fail(failure, "try again");
  return runs;
}
Task<Result<std::string>> never(Context& context) {
  ++runs;
  const Result<void> slept = co_await context.loop().sleep(1h, context.token());
  if (!slept) co_return std::unexpected(slept.error());
  co_return "late";
}

class ClientInterceptors : public ::testing::Test {
 protected:
  void SetUp() override {
    runs = failures_left = 0;
    failure = ErrorCode::overloaded;
  }

  // Runs `body(client)` with the interceptors of `options`.
  template <class Body>
  void run(Body body) {
    server.register_handler<greet, same, flaky, never, running_total>();
    ASSERT_TRUE(server.start());
    options.transports.required = "stream";
    loop.run([](Loop& here, Server& on, ClientOptions with, Body& use) -> Task<void> {
      Client client(here, std::move(with));
      auto connected = co_await client.connect(on.address());
      REQUIRE_OK(connected);
      co_await use(client);
      // A cancelled call keeps its place until the server has answered.
      auto idle =
          co_await eventually(here, [&] { return client.calls_in_flight() + on.counters().calls_in_flight == 0; });
      EXPECT_TRUE(idle);
    }(loop, server, std::move(options), body));
  }
  template <class F>
  void add_interceptor(F interceptor) {
    options.interceptors.push_back(client_interceptor(std::move(interceptor)));
  }
  // Repeats a call that failed, up to three attempts.
  void use_retries() {
    add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
      for (;;) {
        auto outcome = co_await next();
        if (outcome || !call.may_repeat() || call.attempts() == 3) co_return outcome;
        co_await call.loop().sleep(1ms);
      }
    });
  }

  Loop loop{LoopOptions{.log = [](LogLevel, std::string_view, std::string_view) {}}};
  Server server{loop};
  ClientOptions options;
  std::vector<std::string> seen;
};

TEST_F(ClientInterceptors, RunInOrderAndSeeTheCall) {
  for (const char* name : {"a", "b"}) {
    add_interceptor([this, name](OutgoingCall& call, Next next) -> Task<Result<void>> {
      seen.push_back(std::string("<") + name + " " + std::string(call.method()) + " " + std::string(call.protocol()) +
                     " " + std::to_string(call.request_bytes()) + " " + std::to_string(call.reply_bytes()));
      EXPECT_EQ(call.peer(), server.address());
      EXPECT_TRUE(call.deadline());
      EXPECT_FALSE(call.streams());
      EXPECT_EQ(call.attempts(), 0U);
      auto outcome = co_await next();
      EXPECT_EQ(call.attempts(), 1U);
      seen.push_back(std::string(outcome ? ">" : "!") + name + " " + std::to_string(call.reply_bytes()) + " " +
                     std::string(call.reply_metadata().find("from").value_or("")));
      co_return outcome;
    });
  }
  run([this](Client& client) -> Task<void> {
    auto reply = co_await client.call<greet>("hi").reply();
    REQUIRE_OK(reply);
    EXPECT_EQ(**reply, "hi!");
    EXPECT_EQ(reply->metadata().find("from"), "handler");
    const std::string method(method_name<greet>);
    EXPECT_EQ(seen, (std::vector<std::string>{"<a " + method + " hawser 6 0", "<b " + method + " hawser 6 0",
                                              ">b 7 handler", ">a 7 handler"}));
    failures_left = 1;
    failure = ErrorCode::application;
    auto failed = co_await client.call<flaky>();
    EXPECT_ERROR(failed, application, "try again");
    EXPECT_EQ(seen.back(), "!a 0 ");
    // Later ones run within those that were there.
    client.use([this](OutgoingCall&, Next next) -> Task<Result<void>> {
      seen.push_back("c");
      co_return co_await next();
    });
    seen.clear();
    auto again = co_await client.call<greet>("hi");
    EXPECT_OK(again);
    REQUIRE(seen.size() == 5);
    EXPECT_EQ(seen[2], "c");
  });
}

TEST_F(ClientInterceptors, ChangeMetadata) {
  add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_EQ(call.find_metadata("secret"), "s");
    call.remove_metadata("secret");
    call.set_metadata("who", "x");
    call.set_metadata("who", "you");
    EXPECT_EQ(call.metadata().size(), 2U);
    co_return co_await next();
  });
  run([](Client& client) -> Task<void> {
    const CallOptions some{.metadata = {{"secret", "s"}, {"kept", "k"}}};
    auto reply = co_await client.call<greet>(some, "hi");
    EXPECT_EQ(reply, "hi!you");
    client.use([](OutgoingCall& call, Next next) -> Task<Result<void>> {
      call.set_metadata(std::string(256, 'k'), "v");
      co_return co_await next();
    });
    const CallOptions other{.metadata = {{"secret", "s"}, {"kept", "k"}}};
    auto refused = co_await client.call<greet>(other, "hi");
    EXPECT_ERROR(refused, limit_exceeded, "metadata");
  });
}

TEST_F(ClientInterceptors, RefuseWithTheirOwnError) {
  add_interceptor(
      [](OutgoingCall&, Next) -> Task<Result<void>> { co_return fail(ErrorCode::permission_denied, "not you"); });
  run([](Client& client) -> Task<void> {
    auto denied = co_await client.call<flaky>();
    EXPECT_ERROR(denied, permission_denied, "not you");
    auto sent = co_await client.send_request<flaky>();
    EXPECT_ERROR(sent, permission_denied, "not you");
    auto opened = co_await client.open<running_total>();
    EXPECT_ERROR(opened, permission_denied, "not you");
    EXPECT_EQ(runs, 0);
  });
}

TEST_F(ClientInterceptors, RepeatWhatWasNotExecuted) {
  use_retries();
  run([](Client& client) -> Task<void> {
    failures_left = 2;
    auto value = co_await client.call<flaky>();
    EXPECT_EQ(value, 3);
    failures_left = 3;
    runs = 0;
    auto thrice = co_await client.call<flaky>();
    EXPECT_ERROR(thrice, overloaded, "try again");
    EXPECT_EQ(runs, 3);
  });
}

// docs/interceptors.md, "How often they run".
TEST_F(ClientInterceptors, RunOnceACallBeforeTheOneThatRepeatsItAndForEachAttemptBehindIt) {
  int outer = 0;
  int inner = 0;
  const auto counts = [&](int& number) {
    add_interceptor([&number](OutgoingCall&, Next next) -> Task<Result<void>> {
      ++number;
      auto outcome = co_await next();
      co_return outcome;
    });
  };
  counts(outer);
  use_retries();
  counts(inner);
  run([&](Client& client) -> Task<void> {
    failures_left = 2;
    auto third = co_await client.call<flaky>();
    EXPECT_EQ(third, 3);
    EXPECT_EQ(outer, 1);
    EXPECT_EQ(inner, 3);
    // Each attempt of Retrying is a call, and the interceptors repeat it.
    failures_left = 4;
    RetryPolicy policy;
    policy.backoff_first = 1ms;
    Retrying retrying(client, policy);
    auto later = co_await retrying.call<flaky>();
    EXPECT_EQ(later, 8);
    EXPECT_EQ(outer, 1 + 2);
    EXPECT_EQ(inner, 3 + 5);
  });
}

TEST_F(ClientInterceptors, RepeatExecutedCallsOnlyIfTheyAreIdempotent) {
  add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    // It does not ask may_repeat(): a second next() returns the outcome of the first one.
    auto first = co_await next();
    auto second = co_await next();
    EXPECT_EQ(first.has_value(), second.has_value() && !call.idempotent());
    co_return second;
  });
  run([](Client& client) -> Task<void> {
    failure = ErrorCode::application;
    failures_left = 1;
    auto once = co_await client.call<flaky>();
    EXPECT_ERROR(once, application, "try again");
    EXPECT_EQ(runs, 1);
    auto value = co_await client.call<flaky>();
    EXPECT_EQ(value, 2);
    EXPECT_EQ(runs, 2);

    failures_left = 1;
    const CallOptions harmless{.idempotent = true};
    auto twice = co_await client.call<flaky>(harmless);
    EXPECT_EQ(twice, 4);
  });
}

TEST_F(ClientInterceptors, DoNotRepeatRequestsWhoseArgumentsMayBeGone) {
  add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_TRUE(call.may_repeat());
    auto first = co_await next();
    EXPECT_FALSE(call.may_repeat());
    auto second = co_await next();
    EXPECT_EQ(first, second);
    co_return second;
  });
  run([](Client& client) -> Task<void> {
    failures_left = 1;
    auto sent = co_await client.send_request<flaky>();
    REQUIRE_OK(sent);
    auto value = co_await std::move(*sent);
    EXPECT_ERROR(value, overloaded, "try again");
    EXPECT_EQ(runs, 1);
  });
}

TEST_F(ClientInterceptors, ErrorsAfterTheReplyDoNotClaimThatNothingRan) {
  add_interceptor([](OutgoingCall&, Next next) -> Task<Result<void>> {
    auto outcome = co_await next();
    if (outcome) co_return fail(ErrorCode::unavailable, "too late");
    co_return Result<void>{};  // There is no result: the error of the call is returned.
  });
  run([](Client& client) -> Task<void> {
    auto late = co_await client.call<flaky>();
    EXPECT_ERROR(late, application, "too late");
    failures_left = 1;
    auto failed = co_await client.call<flaky>();
    EXPECT_ERROR(failed, overloaded, "try again");
  });
}

TEST_F(ClientInterceptors, MistakesAreErrors) {
  std::optional<Next> kept;
  int way = 0;
  add_interceptor([&](OutgoingCall&, Next next) -> Task<Result<void>> {
    if (way == 0) co_return Result<void>{};
    if (way == 1) throw std::runtime_error("thrown");
    kept = std::move(next);
    co_return fail(ErrorCode::unavailable, "kept");
  });
  run([&](Client& client) -> Task<void> {
    auto success = co_await client.call<flaky>();
    EXPECT_ERROR(success, internal, "without a call of next()");
    way = 1;
    auto thrown = co_await client.call<flaky>();
    EXPECT_ERROR(thrown, internal, "an interceptor threw");
    way = 2;
    auto refused = co_await client.call<flaky>();
    EXPECT_ERROR(refused, unavailable, "kept");
    REQUIRE(kept);
    auto after = co_await (*kept)();
    EXPECT_ERROR(after, internal, "after its call had ended");
    EXPECT_EQ(runs, 0);
  });
}

TEST_F(ClientInterceptors, LargeArgumentsStayUntilTheRequestIsSent) {
  // The request leaves long after send_request() began.
  add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    co_await call.loop().sleep(2ms);
    co_return co_await next();
  });
  run([](Client& client) -> Task<void> {
    std::optional<PendingCall<same>> pending;
    const std::string expected = text_of(3 << 20);
    {
      const std::string text = expected;
      auto sent = co_await client.send_request<same>(text);
      REQUIRE_OK(sent);
      pending.emplace(std::move(*sent));
    }
    auto reply = co_await std::move(*pending);
    REQUIRE_OK(reply);
    EXPECT_EQ(*reply, expected);
    std::string memory(expected.size(), '\0');
    auto placed = co_await client.call<same>(expected).into(std::as_writable_bytes(std::span(memory)));
    REQUIRE_OK(placed);
    EXPECT_EQ(memory, expected);
  });
}

TEST_F(ClientInterceptors, SurroundStreams) {
  add_interceptor([this](OutgoingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_TRUE(call.streams());
    EXPECT_FALSE(call.deadline());
    auto outcome = co_await next();
    EXPECT_FALSE(call.may_repeat());
    seen.push_back(outcome ? "ok" : "failed");
    co_return outcome;
  });
  run([this](Client& client) -> Task<void> {
    auto stream = co_await client.open<running_total>();
    REQUIRE_OK(stream);
    auto writer = stream->writer();
    auto reader = stream->reader();
    for (std::uint64_t i = 1; i <= 3; ++i) {
      auto written = co_await writer.write(i);
      REQUIRE_OK(written);
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      EXPECT_EQ(*item, i * (i + 1) / 2);
    }
    EXPECT_TRUE(seen.empty());
    auto total = co_await stream->finish();
    EXPECT_EQ(total, 6U);
    EXPECT_EQ(seen, std::vector<std::string>{"ok"});
    // A stream that is dropped cancels its call.
    auto dropped = co_await client.open<running_total>();
    REQUIRE_OK(dropped);
  });
  EXPECT_EQ(seen.size(), 1U);  // The interceptor of the dropped call was destroyed where it waited.
}

TEST_F(ClientInterceptors, SeeADeadlineThatPassesDuringTheRequest) {
  add_interceptor([this](OutgoingCall&, Next next) -> Task<Result<void>> {
    auto outcome = co_await next();
    seen.push_back(outcome ? "ok" : std::string(to_string(outcome.error().code)));
    // Nothing is sent for a caller that does not wait.
    auto again = co_await next();
    EXPECT_ERROR(again, deadline_exceeded, "");
    co_return outcome;
  });
  run([](Client& client) -> Task<void> {
    const CallOptions brief{.timeout = 20ms, .idempotent = true};
    auto reply = co_await client.call<never>(brief);
    EXPECT_ERROR(reply, deadline_exceeded, "");
  });
  EXPECT_EQ(seen, std::vector<std::string>{std::string(to_string(ErrorCode::deadline_exceeded))});
}

// The deadlines of the call and of its request pass in one turn of the loop, in either order.
TEST_F(ClientInterceptors, SeeDeadlinesThatPassWhileTheLoopIsBlocked) {
  constexpr std::size_t calls = 200;
  add_interceptor([this](OutgoingCall&, Next next) -> Task<Result<void>> {
    auto outcome = co_await next();
    seen.push_back(outcome ? "ok" : std::string(to_string(outcome.error().code)));
    co_return outcome;
  });
  run([](Client& client) -> Task<void> {
    Scope scope;
    for (std::size_t i = 0; i < calls; ++i) {
      scope.spawn([](Client& by, Duration timeout) -> Task<void> {
        const CallOptions brief{.timeout = timeout, .idempotent = true};
        auto reply = co_await by.call<never>(brief);
        EXPECT_ERROR(reply, deadline_exceeded, "");
      }(client, 100ms + i * 500us));
    }
    co_await Loop::current()->sleep(50ms);
    std::this_thread::sleep_for(300ms);
    co_await scope.join();
  });
  EXPECT_EQ(seen, std::vector<std::string>(calls, std::string(to_string(ErrorCode::deadline_exceeded))));
}

TEST_F(ClientInterceptors, AreDestroyedWhereTheyWaitWhenTheCallerStops) {
  struct Ended {
    explicit Ended(int& at) : count(at) {}
    Ended(const Ended&) = delete;
    Ended& operator=(const Ended&) = delete;
    ~Ended() { ++count; }
    int& count;
  };
  int ended = 0;
  add_interceptor([&ended](OutgoingCall& call, Next next) -> Task<Result<void>> {
    const Ended ending(ended);
    co_await call.loop().sleep(1h);
    co_return co_await next();
  });
  run([&ended](Client& client) -> Task<void> {
    const CallOptions brief{.timeout = 20ms};
    auto reply = co_await client.call<flaky>(brief);
    EXPECT_ERROR(reply, deadline_exceeded, "");
    EXPECT_EQ(ended, 1);
    std::stop_source stop;
    stop.request_stop();
    const CallOptions stopped{.token = stop.get_token()};
    auto cancelled = co_await client.call<flaky>(stopped);
    EXPECT_ERROR(cancelled, cancelled, "");
    EXPECT_EQ(ended, 2);
    {
      Scope scope;
      scope.spawn([](Client& on) -> Task<void> {
        auto dropped = co_await on.send_request<flaky>();
        ADD_FAILURE() << "the call has ended";
      }(client));
      EXPECT_EQ(client.calls_in_flight(), 1U);
    }
    EXPECT_EQ(ended, 3);
    EXPECT_EQ(runs, 0);
  });
}

TEST_F(ClientInterceptors, MayDestroyTheTaskOfNext) {
  add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    {
      Scope attempt;
      attempt.spawn([](Next rest) -> Task<void> {
        auto outcome = co_await rest();
        ADD_FAILURE() << "the attempt has ended: " << error_of(outcome);
      }(next));
      auto served = co_await eventually(call.loop(), [] { return runs == 1; });
      EXPECT_TRUE(served);
      auto beside = co_await next();
      EXPECT_ERROR(beside, internal, "at the same time");
    }
    EXPECT_FALSE(call.may_repeat());
    auto again = co_await next();
    EXPECT_ERROR(again, outcome_unknown, "not sent again");
    co_return again;
  });
  run([](Client& client) -> Task<void> {
    auto once = co_await client.call<never>();
    EXPECT_ERROR(once, outcome_unknown, "not sent again");
    EXPECT_EQ(runs, 1);
  });
}

TEST_F(ClientInterceptors, ATaskOfNextMayOutliveItsCall) {
  Scope scope;
  add_interceptor([&scope](OutgoingCall& call, Next next) -> Task<Result<void>> {
    scope.spawn([](Next rest) -> Task<void> {
      auto outcome = co_await rest();
      EXPECT_ERROR(outcome, cancelled, "the call ended before its handler did");
    }(std::move(next)));
    auto served = co_await eventually(call.loop(), [] { return runs == 1; });
    EXPECT_TRUE(served);
    co_return fail(ErrorCode::application, "no patience");
  });
  run([&](Client& client) -> Task<void> {
    auto once = co_await client.call<never>();
    EXPECT_ERROR(once, application, "no patience");
    auto ended = co_await eventually(*Loop::current(), [&] { return scope.empty(); });
    EXPECT_TRUE(ended);
    scope.clear();
    EXPECT_EQ(client.calls_in_flight(), 0U);
  });
}

TEST_F(ClientInterceptors, EndWithTheirClient) {
  run([this](Client& first) -> Task<void> {
    std::optional<Client> client;
    client.emplace(loop, ClientOptions{});
    client->use([](OutgoingCall& call, Next next) -> Task<Result<void>> {
      if (call.find_metadata("wait")) {
        co_await call.loop().sleep(1h);
      }
      co_return co_await next();
    });
    auto connected = co_await client->connect(first.address());
    REQUIRE_OK(connected);
    Scope scope;
    std::vector<Result<std::string>> outcomes;
    scope.spawn([](Client& on, std::vector<Result<std::string>>& to) -> Task<void> {
      const CallOptions waits{.metadata = {{"wait", "yes"}}};
      auto reply = co_await on.call<greet>(waits, "x");
      to.push_back(reply);
    }(*client, outcomes));
    scope.spawn([](Client& on, std::vector<Result<std::string>>& to) -> Task<void> {
      auto reply = co_await on.call<never>();
      to.push_back(reply);
    }(*client, outcomes));
    EXPECT_EQ(client->calls_in_flight(), 2U);
    auto served = co_await eventually(loop, [] { return runs == 1; });
    EXPECT_TRUE(served);
    client.reset();
    co_await scope.join();
    REQUIRE(outcomes.size() == 2);
    EXPECT_FALSE(outcomes[0]);
    EXPECT_FALSE(outcomes[1]);
  });
}

TEST_F(ClientInterceptors, CallsThatWaitAreBounded) {
  options.calls_in_flight_max = 2;
  add_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    co_await call.loop().sleep(20ms);
    co_return co_await next();
  });
  run([](Client& client) -> Task<void> {
    std::vector<Result<int>> outcomes;
    Scope scope;
    for (int i = 0; i < 3; ++i) {
      scope.spawn([](Client& on, std::vector<Result<int>>& to) -> Task<void> {
        auto value = co_await on.call<flaky>();
        to.push_back(value);
      }(client, outcomes));
    }
    co_await scope.join();
    REQUIRE(outcomes.size() == 3);
    EXPECT_ERROR(outcomes[0], overloaded, "the interceptors have 2 calls in flight already (calls_in_flight_max)");
    EXPECT_OK(outcomes[1]);
    EXPECT_OK(outcomes[2]);
  });
}

TEST_F(ClientInterceptors, OfAPoolAndOfABlockingClient) {
  Server own({.listen = "127.0.0.1:0"});
  own.register_handler<greet>();
  ASSERT_TRUE(own.start());
  PoolOptions pool_options;
  pool_options.client.interceptors.push_back(
      client_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
        call.set_metadata("who", "pool");
        co_return co_await next();
      }));
  loop.run([](Loop& here, std::string address, PoolOptions with) -> Task<void> {
    const auto pool = ClientPool::create(here, std::move(address), std::move(with));
    auto reply = co_await pool->call<greet>(std::string("hi"));
    EXPECT_EQ(reply, "hi!pool");
  }(loop, own.address(), pool_options));
  BlockingOptions blocking;
  blocking.pool = pool_options;
  BlockingClient client(own.address(), blocking);
  EXPECT_EQ(client.call<greet>("hi"), "hi!pool");
  auto started = client.start<greet>(std::string("ho"));
  EXPECT_EQ(started.get(), "ho!pool");
}

}  // namespace hawser::client_interceptors
