#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hawser/interceptor.h"
#include "hawser/sync.h"
#include "hawser/with_timeout.h"
#include "rpc/server/inspector.h"
#include "rpc/server/loop_report.h"
#include "tests/interceptors/running_total.h"
#include "tests/testing.h"

// Interceptors of a server, seen by a client of the library's own protocol.
namespace hawser::server_interceptors {

using namespace testing_tools;
using interceptors::running_total;

int handlers_run = 0;
int handlers_ended = 0;
struct Ends {
  ~Ends() { ++handlers_ended; }
};

std::string shout(Context& context, std::string_view text) {
  ++handlers_run;
  context.add_metadata("from", "handler");
  return std::string(text) + "!" + std::string(context.metadata().find("who").value_or("")) + " " +
         context.identity().text();
}
std::string_view mirror(std::string_view text) { return text; }
Task<std::string> mirror_later(Context& context, std::string text) {
  co_await context.loop().sleep(1ms);
  co_return text;
}
Task<Result<std::string>> wait_for_ever(Context& context, std::string) {
  ++handlers_run;
  const Ends ends;
  const Result<void> slept = co_await context.loop().sleep(1h, context.token());
  if (!slept) co_return std::unexpected(slept.error());
  co_return "late";
}
Result<int> fails() { return std::unexpected(Error::application(7, "it failed")); }
int throws() { throw std::runtime_error("thrown"); }
int blocks() {
  std::this_thread::sleep_for(20ms);
  return 5;
}

class Intercepted : public ::testing::Test {
 protected:
  void SetUp() override { handlers_run = handlers_ended = 0; }

  // Runs `body(client)` against a server with the interceptors that were added to `server`.
  template <class Body>
  void run(Body body) {
    server.register_handler<shout, mirror, mirror_later, wait_for_ever, fails, throws, running_total>();
    server.register_handler<blocks>({.offload = true});
    ASSERT_TRUE(server.start());
    loop.run([](Loop& here, Server& on, Body& use) -> Task<void> {
      Client client(here, {.transports = {.required = "stream"}});
      auto connected = co_await client.connect(on.address());
      REQUIRE_OK(connected);
      co_await use(client);
      EXPECT_EQ(on.counters().calls_in_flight, 0U);
    }(loop, server, body));
  }

  Loop loop{LoopOptions{.log = [](LogLevel, std::string_view, std::string_view) {}}};
  Server server{loop, {.calls_per_connection_max = 8}};
  std::vector<std::string> seen;
};

TEST_F(Intercepted, RunInOrderAndSeeTheCall) {
  for (const char* name : {"a", "b"}) {
    server.use([this, name](IncomingCall& call, Next next) -> Task<Result<void>> {
      seen.push_back(std::string("<") + name + " " + std::string(call.method()) + " " + std::string(call.protocol()) +
                     " " + std::to_string(call.request_bytes()) + " " + std::to_string(call.reply_bytes()));
      EXPECT_EQ(call.peer().substr(0, 9), "127.0.0.1");
      EXPECT_TRUE(call.deadline());
      EXPECT_FALSE(call.streams());
      EXPECT_FALSE(call.identity());
      auto outcome = co_await next();
      seen.push_back(std::string(outcome ? ">" : "!") + name + " " + std::to_string(call.reply_bytes()));
      co_return outcome;
    });
  }
  run([this](Client& client) -> Task<void> {
    const CallOptions for_reply{.timeout = patience};
    auto reply = co_await client.call<shout>(for_reply, "hi").reply();
    REQUIRE_OK(reply);
    EXPECT_EQ(**reply, "hi! nobody");
    EXPECT_EQ(reply->metadata().find("from"), "handler");
    EXPECT_EQ(seen,
              (std::vector<std::string>{"<a " + std::string(method_name<shout>) + " hawser 6 0",
                                        "<b " + std::string(method_name<shout>) + " hawser 6 0", ">b 14", ">a 14"}));
    const CallOptions for_failed{.timeout = patience};
    auto failed = co_await client.call<fails>(for_failed);
    EXPECT_ERROR(failed, application, "it failed");
    const CallOptions for_thrown{.timeout = patience};
    auto thrown = co_await client.call<throws>(for_thrown);
    EXPECT_ERROR(thrown, internal, "the handler threw");
    EXPECT_EQ(seen.back(), "!a 0");
  });
}

TEST_F(Intercepted, ChangeMetadataAndIdentity) {
  server.use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_EQ(call.metadata().find("secret"), "s");
    call.remove_metadata("secret");
    EXPECT_TRUE(call.set_metadata("who", "x"));
    EXPECT_TRUE(call.set_metadata("who", "you"));
    Identity identity;
    identity.kind = Identity::Kind::token;
    identity.subject = "alice";
    call.set_identity(std::move(identity));
    call.add_reply_metadata("via", "interceptor");
    co_return co_await next();
  });
  server.use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_FALSE(call.metadata().find("secret"));
    EXPECT_EQ(call.metadata().copy().size(), 2U);
    // The limits of metadata hold.
    for (int i = 0; i < 62; ++i) EXPECT_TRUE(call.set_metadata("key" + std::to_string(i), "v"));
    EXPECT_ERROR(call.set_metadata("one more", "v"), limit_exceeded, "65 entries");
    EXPECT_ERROR(call.set_metadata("key0", std::string(65'535, 'x')), limit_exceeded, "65535 bytes");
    EXPECT_ERROR(call.set_metadata(std::string(256, 'k'), "v"), limit_exceeded, "a key of 256 bytes");
    EXPECT_TRUE(call.set_metadata("key0", std::string(60'000, 'x')));
    EXPECT_EQ(call.metadata().find("who"), "you");
    co_return co_await next();
  });
  run([](Client& client) -> Task<void> {
    const CallOptions options{.metadata = {{"secret", "s"}, {"kept", "k"}}};
    auto reply = co_await client.call<shout>(options, "hi").reply();
    REQUIRE_OK(reply);
    EXPECT_EQ(**reply, "hi!you token alice");
    EXPECT_EQ(reply->metadata().find("via"), "interceptor");
    EXPECT_EQ(reply->metadata().find("from"), "handler");
  });
}

TEST_F(Intercepted, RefuseWithTheirOwnError) {
  ErrorCode code = ErrorCode::permission_denied;
  server.use([&code](IncomingCall&, Next) -> Task<Result<void>> { co_return fail(code, "not you"); });
  run([&code](Client& client) -> Task<void> {
    auto denied = co_await client.call<shout>("hi");
    EXPECT_ERROR(denied, permission_denied, "not you");
    code = ErrorCode::unavailable;  // The handler has not run, so this is true.
    auto unavailable = co_await client.call<mirror_later>("hi");
    EXPECT_ERROR(unavailable, unavailable, "not you");
    auto stream = co_await client.open<running_total>();
    REQUIRE_OK(stream);
    auto finished = co_await stream->finish();
    EXPECT_ERROR(finished, unavailable, "not you");
    EXPECT_EQ(handlers_run, 0);
  });
}

TEST_F(Intercepted, ErrorsAfterTheHandlerDoNotClaimThatNothingRan) {
  server.use([](IncomingCall&, Next next) -> Task<Result<void>> {
    auto outcome = co_await next();
    if (outcome) co_return fail(ErrorCode::unavailable, "too late");
    co_return Result<void>{};  // There is no result to send: the handler's error is.
  });
  run([](Client& client) -> Task<void> {
    auto late = co_await client.call<shout>("hi");
    EXPECT_ERROR(late, application, "too late");
    const std::string text_large = text_of(1 << 20);
    auto large = co_await client.call<mirror>(text_large);
    EXPECT_ERROR(large, application, "too late");
    auto failed = co_await client.call<fails>();
    EXPECT_ERROR(failed, application, "it failed");
  });
}

TEST_F(Intercepted, MistakesAreErrors) {
  std::optional<Next> kept;
  int way = 0;
  server.use([&](IncomingCall&, Next next) -> Task<Result<void>> {
    switch (way) {
      case 0: co_return Result<void>{};
      case 1: {
        auto first = co_await next();
        EXPECT_OK(first);
        co_return co_await next();
      }
      case 2: throw std::runtime_error("secret text");
      default: {
        kept = next;
        co_return co_await next();
      }
    }
  });
  run([&](Client& client) -> Task<void> {
    auto none = co_await client.call<shout>("hi");
    EXPECT_ERROR(none, internal, "without a call of next()");
    way = 1;
    auto twice = co_await client.call<shout>("hi");
    EXPECT_ERROR(twice, internal, "called next() twice");
    EXPECT_EQ(handlers_run, 1);
    way = 2;
    auto thrown = co_await client.call<shout>("hi");
    EXPECT_ERROR(thrown, internal, "an interceptor threw an exception");
    way = 3;
    auto good = co_await client.call<shout>("hi");
    EXPECT_OK(good);
    REQUIRE(kept);
    auto late = co_await (*kept)();
    EXPECT_ERROR(late, internal, "after its call had ended");
  });
}

TEST_F(Intercepted, RepliesOfAllSizesAndKindsPass) {
  server.use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    co_await call.loop().sleep(1ms);
    co_return co_await next();
  });
  run([](Client& client) -> Task<void> {
    for (const std::size_t size : {0UZ, 100UZ, 4097UZ, 9000UZ, 100'000UZ, 3'000'000UZ}) {
      const std::string text = text_of(size);
      auto at_once = co_await client.call<mirror>(text);
      REQUIRE_OK(at_once);
      EXPECT_TRUE(*at_once == text) << size;
      auto later = co_await client.call<mirror_later>(text);
      REQUIRE_OK(later);
      EXPECT_TRUE(*later == text) << size;
    }
    auto blocked = co_await client.call<blocks>();
    EXPECT_EQ(blocked, 5);
  });
}

TEST_F(Intercepted, SurroundAWholeStream) {
  server.use([this](IncomingCall& call, Next next) -> Task<Result<void>> {
    EXPECT_TRUE(call.streams());
    // The caller's items come before the handler runs.
    co_await call.loop().sleep(5ms);
    auto outcome = co_await next();
    seen.emplace_back("end");
    co_return outcome;
  });
  run([this](Client& client) -> Task<void> {
    auto stream = co_await client.open<running_total>();
    REQUIRE_OK(stream);
    auto writer = stream->writer();
    auto reader = stream->reader();
    std::uint64_t expected = 0;
    for (std::uint64_t i = 1; i <= 100; ++i) {
      auto written = co_await writer.write(i);
      REQUIRE_OK(written);
    }
    for (std::uint64_t i = 1; i <= 100; ++i) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      expected += i;
      EXPECT_EQ(*item, expected);
    }
    EXPECT_TRUE(seen.empty());
    auto total = co_await stream->finish();
    EXPECT_EQ(total, expected);
    EXPECT_EQ(seen.size(), 1U);
  });
}

// ---- Interceptors that wait ----

TEST_F(Intercepted, CancellationReachesAnInterceptorThatWaits) {
  bool stopped = false;
  server.use([&stopped](IncomingCall& call, Next next) -> Task<Result<void>> {
    const Result<void> slept = co_await call.loop().sleep(1h, call.token());
    stopped = !slept;
    auto outcome = co_await next();  // The caller is gone: no handler runs.
    EXPECT_ERROR(outcome, cancelled, "did not wait any more");
    co_return outcome;
  });
  run([&](Client& client) -> Task<void> {
    std::stop_source stop;
    auto cancel = [](Loop& on, std::stop_source source) -> Task<void> {
      co_await on.sleep(2ms);
      source.request_stop();
    };
    Scope scope;
    scope.spawn(cancel(loop, stop));
    const CallOptions for_reply{.token = stop.get_token()};
    auto reply = co_await client.call<shout>(for_reply, "hi");
    EXPECT_ERROR(reply, cancelled, "");
    auto done = co_await eventually(loop, [&] { return stopped && server.counters().calls_in_flight == 0; });
    EXPECT_TRUE(done);
    EXPECT_EQ(handlers_run, 0);
  });
}

TEST_F(Intercepted, CancellationReachesTheHandlerThatAnInterceptorAwaits) {
  server.use([](IncomingCall&, Next next) -> Task<Result<void>> { co_return co_await next(); });
  run([&](Client& client) -> Task<void> {
    // After the handler has begun: a cancelled call whose request has not left runs no handler.
    std::stop_source stop;
    auto cancel = [](Loop& on, std::stop_source source) -> Task<void> {
      auto began = co_await eventually(on, [] { return handlers_run == 1; });
      EXPECT_TRUE(began);
      source.request_stop();
    };
    Scope scope;
    scope.spawn(cancel(loop, stop));
    const CallOptions for_reply{.token = stop.get_token()};
    auto reply = co_await client.call<wait_for_ever>(for_reply, "hi");
    EXPECT_ERROR(reply, cancelled, "");
    auto done =
        co_await eventually(loop, [&] { return handlers_ended == 1 && server.counters().calls_in_flight == 0; });
    EXPECT_TRUE(done);
  });
}

TEST_F(Intercepted, DestroyingNextEndsTheHandler) {
  server.use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    {
      Scope scope;
      scope.spawn([](Next rest) -> Task<void> {
        auto outcome = co_await rest();
        EXPECT_OK(outcome);
      }(next));
      co_await call.loop().sleep(2ms);
      EXPECT_EQ(handlers_run, 1);
    }
    EXPECT_EQ(handlers_ended, 1);
    co_return fail(ErrorCode::deadline_exceeded, "the interceptor's patience has ended");
  });
  run([](Client& client) -> Task<void> {
    auto reply = co_await client.call<wait_for_ever>("hi");
    EXPECT_ERROR(reply, deadline_exceeded, "patience");
  });
}

TEST_F(Intercepted, ATaskOfNextMayOutliveItsCall) {
  Scope scope;
  server.use([&scope](IncomingCall& call, Next next) -> Task<Result<void>> {
    scope.spawn([](Next rest) -> Task<void> {
      auto outcome = co_await rest();
      EXPECT_ERROR(outcome, cancelled, "the call ended before its handler did");
    }(std::move(next)));
    co_await call.loop().sleep(2ms);
    co_return Result<void>{};
  });
  run([&](Client& client) -> Task<void> {
    const CallOptions for_reply{.timeout = patience};
    auto reply = co_await client.call<wait_for_ever>(for_reply, "hi");
    EXPECT_ERROR(reply, internal, "before the handler had answered");
    co_await scope.join();
    EXPECT_EQ(handlers_ended, 1);
  });
}

// An interceptor that the task of next() has begun refers to the call, and ends with it.
TEST_F(Intercepted, ATaskOfNextThatOutlivesItsCallEndsTheInterceptorsBehindIt) {
  Scope scope;
  server.use([&scope](IncomingCall& call, Next next) -> Task<Result<void>> {
    scope.spawn([](Next rest) -> Task<void> {
      auto outcome = co_await rest();
      EXPECT_ERROR(outcome, cancelled, "the call ended before its handler did");
    }(std::move(next)));
    co_await call.loop().sleep(2ms);
    co_return fail(ErrorCode::permission_denied, "no patience");
  });
  server.use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    const Ends ends;
    co_await call.loop().sleep(1h);
    co_return co_await next();
  });
  run([&](Client& client) -> Task<void> {
    const CallOptions for_reply{.timeout = patience};
    auto reply = co_await client.call<shout>(for_reply, "hi");
    EXPECT_ERROR(reply, permission_denied, "no patience");
    EXPECT_EQ(handlers_ended, 1);
    scope.clear();
    EXPECT_EQ(handlers_run, 0);
  });
}

TEST_F(Intercepted, NextDoesNothingOnceItsInterceptorHasEnded) {
  std::optional<Next> kept;
  server.use([&](IncomingCall&, Next next) -> Task<Result<void>> {
    auto refused = co_await next();
    EXPECT_ERROR(refused, permission_denied, "");
    auto late = co_await (*kept)();
    EXPECT_ERROR(late, internal, "after its interceptor had ended");
    co_return refused;
  });
  server.use([&](IncomingCall&, Next next) -> Task<Result<void>> {
    kept = next;
    co_return fail(ErrorCode::permission_denied, "no");
  });
  run([&](Client& client) -> Task<void> {
    auto reply = co_await client.call<shout>("hi");
    EXPECT_ERROR(reply, permission_denied, "no");
    EXPECT_EQ(handlers_run, 0);
  });
}

std::string made(std::uint32_t bytes) { return text_of(bytes); }

TEST_F(Intercepted, HeldRepliesCountAsReceivedMemory) {
  constexpr std::uint32_t reply_bytes = 3'000'000;
  Event held;
  Event done;
  server.use([&](IncomingCall& call, Next next) -> Task<Result<void>> {
    auto outcome = co_await next();
    if (call.reply_bytes() >= reply_bytes) {
      held.set();
      co_await done.wait();
    }
    co_return outcome;
  });
  server.register_handler<made>();
  const auto kept = [&] { return rpc::Inspector::loops(server).at(0).receive_bytes; };
  run([&](Client& client) -> Task<void> {
    auto sent = co_await client.send_request<made>(reply_bytes);
    REQUIRE_OK(sent);
    co_await held.wait();
    EXPECT_GE(kept(), reply_bytes);
    done.set();
    auto reply = co_await std::move(*sent);
    REQUIRE_OK(reply);
    EXPECT_TRUE(*reply == text_of(reply_bytes));
    auto released = co_await eventually(loop, [&] { return kept() < reply_bytes; });
    EXPECT_TRUE(released);
  });
}

Task<Result<void>> wait_for_stop(IncomingCall& call, Next next) {
  static_cast<void>(co_await call.loop().sleep(1h, call.token()));
  co_return co_await next();
}

TEST_F(Intercepted, WaitingInterceptorsCountAsCalls) {
  server.use(wait_for_stop);
  run([&](Client& client) -> Task<void> {
    std::stop_source stop;
    std::vector<PendingCall<mirror>> calls;
    for (int i = 0; i < 8; ++i) {
      const CallOptions for_sent{.token = stop.get_token()};
      auto sent = co_await client.send_request<mirror>(for_sent, "hi");
      REQUIRE_OK(sent);
      calls.push_back(std::move(*sent));
    }
    auto all = co_await eventually(loop, [&] { return server.counters().calls_in_flight == 8; });
    EXPECT_TRUE(all);
    auto ninth = co_await client.call<mirror>("hi");
    EXPECT_ERROR(ninth, overloaded, "");
    stop.request_stop();
    for (auto& call : calls) {
      auto reply = co_await std::move(call);
      EXPECT_ERROR(reply, cancelled, "");
    }
    auto none = co_await eventually(loop, [&] { return server.counters().calls_in_flight == 0; });
    EXPECT_TRUE(none);
  });
}

TEST_F(Intercepted, LostConnectionsStopInterceptors) {
  server.use(wait_for_stop);
  run([&](Client& client) -> Task<void> {
    auto sent = co_await client.send_request<mirror>("hi");
    REQUIRE_OK(sent);
    auto began = co_await eventually(loop, [&] { return server.counters().calls_in_flight == 1; });
    EXPECT_TRUE(began);
    client.close();
    auto none = co_await eventually(loop, [&] { return server.counters().connections_open == 0; });
    EXPECT_TRUE(none);
  });
}

// Interceptors that ignore their token, before and after the handler, are destroyed at the end of the grace.
TEST_F(Intercepted, AStopEndsInterceptorsThatIgnoreIt) {
  server.use([this](IncomingCall& call, Next next) -> Task<Result<void>> {
    struct Leaves {
      explicit Leaves(std::vector<std::string>& to) : lines(to) {}
      ~Leaves() { lines.emplace_back("destroyed"); }
      std::vector<std::string>& lines;
    };
    const Leaves leaves(seen);
    const bool after = call.metadata().find("after").has_value();
    if (after) {
      auto outcome = co_await next();
      EXPECT_OK(outcome);
    }
    seen.emplace_back("waits");
    co_await call.loop().sleep(1h);
    co_return co_await next();
  });
  run([&](Client& client) -> Task<void> {
    const CallOptions after{.metadata = {{"after", ""}}};
    auto before = co_await client.send_request<mirror>("hi");
    auto small = co_await client.send_request<mirror>(after, "hi");
    const std::string text_large = text_of(100'000);
    auto large = co_await client.send_request<mirror>(after, text_large);
    const std::string text_inside = text_of(100'000);
    auto inside = co_await client.send_request<mirror_later>(after, text_inside);
    auto elsewhere = co_await client.send_request<blocks>(after);
    auto began = co_await eventually(loop, [&] { return seen.size() == 5; });
    EXPECT_TRUE(began);
    co_await server.shut_down(1ms);
    EXPECT_EQ(seen.size(), 10U);
    EXPECT_EQ(seen.back(), "destroyed");
  });
}

// A function on another thread has not ended at the end of the grace; the interceptor around it would wait for ever.
TEST_F(Intercepted, AStopWaitsForOffloadedFunctionsOnly) {
  server.use([this](IncomingCall& call, Next next) -> Task<Result<void>> {
    auto outcome = co_await next();
    seen.emplace_back("never");
    co_await call.loop().sleep(1h);
    co_return outcome;
  });
  run([&](Client& client) -> Task<void> {
    auto sent = co_await client.send_request<blocks>();
    auto began = co_await eventually(loop, [&] { return server.counters().calls_in_flight == 1; });
    EXPECT_TRUE(began);
    co_await server.shut_down(0ms);
    EXPECT_LE(seen.size(), 1U);
  });
}

TEST_F(Intercepted, AreAddedBeforeTheStart) {
  run([this](Client&) -> Task<void> {
    EXPECT_THROW(server.use([](IncomingCall&, Next next) { return next(); }), std::logic_error);
    co_return;
  });
}

void destroy_in_an_interceptor(bool late) {
  Loop loop;
  auto server = std::make_unique<Server>(loop, ServerOptions{});
  server->use([](IncomingCall&, Next next) { return next(); });
  server->use([&server, late](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (late) {
      co_await call.loop().sleep(1ms);
    }
    server.reset();
    co_return co_await next();
  });
  server->register_handler<mirror>();
  ASSERT_TRUE(server->start());
  loop.run([](Loop& here, std::string address) -> Task<void> {
    Client client(here, {.transports = {.required = "stream"}});
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<mirror>("hi");
    ADD_FAILURE() << error_of(reply);
  }(loop, server->address()));
}

TEST(InterceptorsDeathTest, MustNotDestroyTheirServer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(destroy_in_an_interceptor(false), "destroyed by one of its own handlers");
  EXPECT_DEATH(destroy_in_an_interceptor(true), "destroyed by one of its own handlers");
}

}  // namespace hawser::server_interceptors
