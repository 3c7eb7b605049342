#include <gtest/gtest.h>

#include <string>

#include "hawser/interceptor.h"
#include "tests/testing.h"

// Interceptors of a server that say beforehand that they have nothing to do with a call.
namespace hawser::skipped_interceptors {

using namespace testing_tools;

std::string greet(std::string_view name) { return "hello " + std::string(name); }
Task<std::string> greet_later(Context& context, std::string name) {
  auto pause = context.loop().sleep(1ms);
  co_await pause;
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
      AWAIT(connected, client.connect(on.address()));
      REQUIRE_OK(connected);
      auto using_it = use(client);
      co_await std::move(using_it);
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
      AWAIT(reply, client.call<greet>("you"));
      EXPECT_EQ(reply, "hello you");
      AWAIT(later, client.call<greet_later>("you"));
      EXPECT_EQ(later, "later you");
      AWAIT(failed, client.call<refuse>());
      EXPECT_ERROR(failed, application, "it failed");
    }
    EXPECT_EQ(first + second, 0);
    const CallOptions looked_at{.metadata = {{"look", "here"}}};
    AWAIT(reply, client.call<greet>(looked_at, "you"));
    EXPECT_EQ(reply, "hello you");
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
  });
}

TEST_F(Skipped, NotIfOneHasSomethingToDo) {
  server.use(Skipping{&first});
  server.use([](IncomingCall&, Next next) -> Task<Result<void>> { return next(); });
  run([&](Client& client) -> Task<void> {
    AWAIT(reply, client.call<greet>("you"));
    EXPECT_EQ(reply, "hello you");
    EXPECT_EQ(first, 1);
  });
}

}  // namespace hawser::skipped_interceptors
