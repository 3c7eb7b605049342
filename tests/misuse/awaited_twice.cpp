#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "hawser/hawser.h"
#include "hawser/retry.h"
#include "tests/testing.h"

// Things that are awaited once end the process with a message the second time.
namespace hawser::awaited_twice {

using namespace testing_tools;

std::string echo_text(std::string text) { return text; }
Task<void> no_items(Context& context, Writer<int>) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
}
Task<int> seven() { co_return 7; }

constexpr const char* text = "awaited although it was awaited or moved from before";

TEST(AwaitedTwiceDeathTest, ATask) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [](bool moved) {
    sync_wait([](bool away) -> Task<void> {
      auto task = seven();
      if (away) {
        auto other = std::move(task);
        co_await std::move(task);
      } else {
        co_await std::move(task);
        co_await std::move(task);
      }
    }(moved));
  };
  EXPECT_DEATH(twice(false), text);
  EXPECT_DEATH(twice(true), text);
}

Task<void> await_call_twice(Client& client, std::string address, bool whole) {
  auto connected = co_await client.connect(address);
  REQUIRE_OK(connected);
  auto call = client.call<echo_text>("hello");
  auto first = co_await std::move(call);
  EXPECT_EQ(first, "hello");
  if (whole) {
    auto reply = co_await std::move(call).reply();
  } else {
    auto reply = co_await std::move(call);
  }
}

TEST(AwaitedTwiceDeathTest, ACall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [](bool whole) {
    Loop loop;
    Server server(loop, {.listen = "127.0.0.1:0"});
    server.register_handler<echo_text>();
    if (!server.start()) return;
    Client client(loop);
    loop.run(await_call_twice(client, server.address(), whole));
  };
  EXPECT_DEATH(twice(false), text);
  EXPECT_DEATH(twice(true), text);
}

// The first time as a task, the second time as a task or for the whole reply.
template <class Via>
Task<void> await_pooled_call_twice(Via& via, bool moved, bool whole) {
  auto call = via.template call<echo_text>("hello");
  Task<Result<std::string>> first;
  if (moved) {
    first = std::move(call);
  } else {
    auto reply = co_await std::move(call);
    EXPECT_EQ(reply, "hello");
  }
  if (whole) {
    auto reply = co_await std::move(call).reply();
  } else {
    auto reply = co_await std::move(call);
  }
}

TEST(AwaitedTwiceDeathTest, ACallOfAPoolOrARetrying) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [](bool retrying, bool moved, bool whole) {
    Loop loop;
    Server server(loop, {.listen = "127.0.0.1:0"});
    server.register_handler<echo_text>();
    if (!server.start()) return;
    const auto pool = ClientPool::create(loop, server.address());
    Retrying again(*pool);
    loop.run(retrying ? await_pooled_call_twice(again, moved, whole) : await_pooled_call_twice(*pool, moved, whole));
  };
  for (const bool retrying : {false, true}) {
    EXPECT_DEATH(twice(retrying, false, false), text);
    EXPECT_DEATH(twice(retrying, false, true), text);
    EXPECT_DEATH(twice(retrying, true, false), text);
    EXPECT_DEATH(twice(retrying, true, true), text);
  }
}

Task<void> read(Reader<int> reader) { auto item = co_await reader.next(); }
Task<void> read_twice(Client& client, std::string address) {
  auto connected = co_await client.connect(address);
  REQUIRE_OK(connected);
  auto opened = co_await client.open<no_items>();
  REQUIRE_OK(opened);
  Scope readers;
  readers.spawn(read(opened->reader()));
  readers.spawn(read(opened->reader()));
}

TEST(AwaitedTwiceDeathTest, TheNextItemOfAStream) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [] {
    Loop loop;
    Server server(loop, {.listen = "127.0.0.1:0"});
    server.register_handler<no_items>();
    if (!server.start()) return;
    Client client(loop);
    loop.run(read_twice(client, server.address()));
  };
  EXPECT_DEATH(twice(), "two coroutines read one stream at the same time");
}

}  // namespace hawser::awaited_twice
