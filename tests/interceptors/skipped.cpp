#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hawser/interceptor.h"
#include "tests/testing.h"

// Interceptors of a server that say beforehand that they have nothing to do with a call.
namespace hawser::skipped_interceptors {

using namespace testing_tools;

std::string greet(std::string_view name) { return "hello " + std::string(name); }
Task<std::string> greet_later(Context& context, std::string name) {
  co_await context.loop().sleep(1ms);
  co_return "later " + name;
}
Result<int> refuse() { return std::unexpected(Error::application(7, "it failed")); }

// Has nothing to do with calls without a certain metadata.
struct Skipping {
  Task<Result<void>> operator()(IncomingCall&, Next next) const {
    ++*entered;
    return next();
  }
  bool skips(MetadataView metadata) const noexcept { return !metadata.find("look"); }
  int* entered;
};

class Skipped : public ::testing::Test {
 protected:
  template <class Body>
  void run(Body body) {
    server.register_handler<greet, greet_later, refuse>();
    ASSERT_TRUE(server.start());
    loop.run([](Loop& here, Server& on, Body& use) -> Task<void> {
      Client client(here, {.call_timeout = patience, .transports = {.required = "stream"}});
      auto connected = co_await client.connect(on.address());
      REQUIRE_OK(connected);
      co_await use(client);
      EXPECT_EQ(on.counters().calls_in_flight, 0U);
    }(loop, server, body));
  }

  Loop loop;
  Server server{loop};
  int first = 0;
  int second = 0;
};

TEST_F(Skipped, IfNoneHasSomethingToDo) {
  server.use(Skipping{&first});
  server.use(Skipping{&second});
  run([&](Client& client) -> Task<void> {
    for (int i = 0; i < 3; ++i) {
      auto reply = co_await client.call<greet>("you");
      EXPECT_EQ(reply, "hello you");
      auto later = co_await client.call<greet_later>("you");
      EXPECT_EQ(later, "later you");
      auto failed = co_await client.call<refuse>();
      EXPECT_ERROR(failed, application, "it failed");
    }
    EXPECT_EQ(first + second, 0);
    const CallOptions looked_at{.metadata = {{"look", "here"}}};
    auto reply = co_await client.call<greet>(looked_at, "you");
    EXPECT_EQ(reply, "hello you");
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
  });
}

TEST_F(Skipped, NotIfOneHasSomethingToDo) {
  server.use(Skipping{&first});
  server.use([](IncomingCall&, Next next) -> Task<Result<void>> { return next(); });
  run([&](Client& client) -> Task<void> {
    auto reply = co_await client.call<greet>("you");
    EXPECT_EQ(reply, "hello you");
    EXPECT_EQ(first, 1);
  });
}

Task<int> never(Context& context) {
  co_await context.loop().sleep(1h);
  co_return 1;
}
int throws() { throw std::runtime_error("thrown"); }
Task<Result<void>> counts(Context&, Reader<int> items) {
  for (;;) {
    auto item = co_await items.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) co_return fail(ErrorCode::application, "counted");
  }
}

// Skips all calls, and keeps what it sees of those that fail or last.
struct Watching {
  struct Seen {
    std::string method;
    std::string who;
    std::size_t request_bytes = 0;
    std::size_t reply_bytes = 0;
    Duration duration{};
    std::optional<Error> error;
  };
  Task<Result<void>> operator()(IncomingCall&, Next next) const { return next(); }
  bool skips(MetadataView) const noexcept { return true; }
  void skipped(const SkippedCall& call) const noexcept {
    EXPECT_EQ(call.protocol(), "hawser");
    EXPECT_FALSE(call.peer().empty());
    Seen one{std::string(call.method()),
             std::string(call.metadata().find("who").value_or("")),
             call.request_bytes(),
             call.reply_bytes(),
             call.duration(),
             std::nullopt};
    if (call.error() != nullptr) one.error = *call.error();
    seen->push_back(std::move(one));
  }
  std::vector<Seen>* seen;
};

TEST_F(Skipped, NotifiesOfFailuresAndOfResultsThatComeLater) {
  std::vector<Watching::Seen> seen;
  server.use(Skipping{&first});
  server.use(Watching{&seen});
  server.register_handler<throws, never, counts>();
  run([&](Client& client) -> Task<void> {
    const CallOptions named{.metadata = {{"who", "me"}}};
    auto reply = co_await client.call<greet>("you");
    EXPECT_EQ(reply, "hello you");
    EXPECT_EQ(seen.size(), 0U);  // It was answered at once.
    auto failed = co_await client.call<refuse>(named);
    EXPECT_ERROR(failed, application, "it failed");
    REQUIRE(seen.size() == 1);
    EXPECT_EQ(seen[0].method, method_name<refuse>);
    EXPECT_EQ(seen[0].who, "me");
    EXPECT_EQ(seen[0].duration, 0s);
    EXPECT_TRUE(seen[0].error && seen[0].error->application_code == 7 && seen[0].error->text == "it failed");
    auto later = co_await client.call<greet_later>(named, std::string("you"));
    EXPECT_EQ(later, "later you");
    REQUIRE(seen.size() == 2);
    EXPECT_EQ(seen[1].method, method_name<greet_later>);
    EXPECT_EQ(seen[1].who, "me");
    EXPECT_GE(seen[1].duration, 1ms);
    EXPECT_GT(seen[1].request_bytes, 3U);
    EXPECT_GT(seen[1].reply_bytes, 9U);
    EXPECT_FALSE(seen[1].error);
    auto thrown = co_await client.call<throws>();
    EXPECT_ERROR(thrown, internal, "threw an exception");
    REQUIRE(seen.size() == 3);
    EXPECT_TRUE(seen[2].error && seen[2].error->code == ErrorCode::internal);
    auto stream = co_await client.open<counts>();
    REQUIRE_OK(stream);
    auto written = co_await stream->writer().write(1);
    EXPECT_OK(written);
    stream->writer().end();
    auto counted = co_await stream->finish();
    EXPECT_ERROR(counted, application, "counted");
    REQUIRE(seen.size() == 4);
    EXPECT_TRUE(seen[3].error && seen[3].error->text == "counted");
    // Calls that interceptors surround have ended for these.
    const CallOptions looked_at{.metadata = {{"look", "here"}}};
    auto surrounded = co_await client.call<refuse>(looked_at);
    EXPECT_ERROR(surrounded, application, "it failed");
    auto waited = co_await client.call<greet_later>(looked_at, std::string("you"));
    EXPECT_OK(waited);
    EXPECT_EQ(first, 2);
    EXPECT_EQ(seen.size(), 4U);
  });
}

TEST_F(Skipped, NotifiesOfACallThatIsDropped) {
  std::vector<Watching::Seen> seen;
  server.use(Watching{&seen});
  server.register_handler<never>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& here, Server& on) -> Task<void> {
    Client client(here, {.transports = {.required = "stream"}});
    auto connected = co_await client.connect(on.address());
    REQUIRE_OK(connected);
    auto pending = co_await client.send_request<never>();
    REQUIRE_OK(pending);
    auto served = co_await eventually(here, [&] { return on.counters().calls_in_flight == 1; });
    EXPECT_TRUE(served);
    co_await on.shut_down(0s);
  }(loop, server));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].method, method_name<never>);
  EXPECT_TRUE(seen[0].error && seen[0].error->code == ErrorCode::cancelled);
}

// Skips the calls of one half of all draws, and knows a call again that it does not skip.
struct Drawing {
  Task<Result<void>> operator()(IncomingCall& call, Next next) const {
    EXPECT_EQ(call.draw().number(), *drawn);
    if (call.draw().within(0.5)) ++*chosen;
    return next();
  }
  bool skips(MetadataView, detail::CallDraw& draw) const noexcept {
    *drawn = draw.number();
    return !draw.within(0.5);
  }
  std::uint64_t* drawn;
  int* chosen;
};

TEST_F(Skipped, ACallHasOneRandomNumber) {
  std::uint64_t drawn = 0;
  int alone = 0;
  server.use(Drawing{&drawn, &alone});
  run([&](Client& client) -> Task<void> {
    for (int i = 0; i < 1000; ++i) {
      auto reply = co_await client.call<greet>("you");
      REQUIRE_OK(reply);
    }
  });
  // 500 are expected, and the standard deviation is 16. A second draw would make them 250.
  EXPECT_GT(alone, 375);
  EXPECT_LT(alone, 625);
}

TEST_F(Skipped, ACallHasOneRandomNumberBesideAnInterceptorThatSkipsNone) {
  std::uint64_t drawn = 0;
  int chosen = 0;
  server.use(Drawing{&drawn, &chosen});
  server.use([](IncomingCall&, Next next) -> Task<Result<void>> { return next(); });
  run([&](Client& client) -> Task<void> {
    for (int i = 0; i < 1000; ++i) {
      auto reply = co_await client.call<greet>("you");
      REQUIRE_OK(reply);
    }
  });
  // A second draw would make them 750.
  EXPECT_GT(chosen, 375);
  EXPECT_LT(chosen, 625);
}

}  // namespace hawser::skipped_interceptors
