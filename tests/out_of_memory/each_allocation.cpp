#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/hawser.h"
#include "tests/out_of_memory/block_limit.h"
#include "tests/testing.h"

// Each allocation of a server that serves a peer, or of a client, fails once. The connection may end. The server serves
// others, and the client connects again.
namespace hawser::out_of_memory {

using namespace testing_tools;

std::string_view echo_view(std::string_view text) { return text; }
Task<std::string> echo_later(std::string text) { co_return text; }
std::size_t count_parts(const std::vector<std::string>& parts) { return parts.size(); }
Task<void> shout(Reader<std::string> in, Writer<std::string> out) {
  for (;;) {
    auto item = co_await in.next();
    if (!item || !*item) co_return;
    auto written = co_await out.write(**item);
    if (!written) co_return;
  }
}

struct Kind {
  const char* name;
  Task<void> (*use)(Client&);
  bool connects = false;  // Also allocations of the connect may fail.
};
const std::vector<Kind> kinds = {
    {"Connect", [](Client&) -> Task<void> { co_return; }, true},
    {"Small",
     [](Client& client) -> Task<void> {
       const std::string text = text_of(100);
       auto reply = co_await client.call<echo_view>(text);
     }},
    {"Large",
     [](Client& client) -> Task<void> {
       const std::string text = text_of(100'000);
       auto reply = co_await client.call<echo_view>(text);
     }},
    {"Coroutine",
     [](Client& client) -> Task<void> {
       const std::string text = text_of(100'000);
       auto reply = co_await client.call<echo_later>(text);
     }},
    {"LongHead",
     [](Client& client) -> Task<void> {
       const std::vector<std::string> parts(1000, text_of(1000));
       auto reply = co_await client.call<count_parts>(parts);
     }},
    {"Stream",
     [](Client& client) -> Task<void> {
       auto opened = co_await client.open<shout>();
       if (!opened) co_return;
       auto writer = opened->writer();
       auto reader = opened->reader();
       for (const std::size_t bytes : {std::size_t{10}, std::size_t{100'000}}) {
         const std::string text = text_of(bytes);
         auto written = co_await writer.write(text);
         if (!written) co_return;
         auto item = co_await reader.next();
         if (!item) co_return;
       }
       auto finished = co_await opened->finish();
     }},
};

struct Parameter {
  Kind kind;
  const char* transport;
};
class EachAllocation : public ::testing::TestWithParam<Parameter> {
 protected:
  EachAllocation() {
    thread_of_client = true;
    server.register_handler<echo_view, echo_later, count_parts, shout>();
  }
  ~EachAllocation() override {
    allocations_left = -1;
    client_fails = false;
    thread_of_client = false;
  }

  // Connects and uses the kind of this test, of which the allocation at this position fails.
  Task<void> use(Client& client, long position) {
    if (GetParam().kind.connects) allocations_left = position;
    auto connected = co_await client.connect(server.address());
    if (!GetParam().kind.connects) {
      REQUIRE_OK(connected);
      allocations_left = position;
    }
    if (connected) co_await GetParam().kind.use(client);
  }
  // True if the allocation at the position was reached.
  static bool failed() { return allocations_left.exchange(-1) < 0; }
  Task<void> expect_service(Client& client, long position) {
    auto connected = co_await client.connect(server.address());
    EXPECT_TRUE(connected) << "after the failure of allocation " << position << ": " << error_of(connected);
    if (!connected) co_return;
    auto reply = co_await client.call<echo_view>("hello");
    EXPECT_EQ(reply, "hello") << "after the failure of allocation " << position;
  }

  Server server{{.listen = "127.0.0.1:0", .loop = {.log = no_log()}}};
  const ClientOptions options{.call_timeout = patience, .transports = {.required = GetParam().transport}};
};

TEST_P(EachAllocation, OfAServerMayFail) {
  ASSERT_TRUE(server.start());
  long position = 0;
  for (bool more = true; more; ++position) {
    ASSERT_LT(position, 2000);
    Loop loop(LoopOptions{.log = no_log()});
    Client client(loop, options);
    loop.run(use(client, position));
    more = failed();
    Client other(loop, options);
    loop.run(expect_service(other, position));
  }
  RecordProperty("allocations", static_cast<int>(position));
  EXPECT_TRUE(soon([&] { return server.counters().calls_in_flight == 0; }));
}

// The exception arrives where the client is used, or an error does. The same client works afterwards.
TEST_P(EachAllocation, OfAClientMayFail) {
  ASSERT_TRUE(server.start());
  client_fails = true;
  long position = 0;
  for (bool more = true; more; ++position) {
    ASSERT_LT(position, 2000);
    Loop loop(LoopOptions{.log = no_log()});
    Client client(loop, options);
    try {
      loop.run(use(client, position));
    } catch (const std::bad_alloc&) {
    }
    more = failed();
    loop.run(expect_service(client, position));
  }
  RecordProperty("allocations", static_cast<int>(position));
  EXPECT_TRUE(soon([&] { return server.counters().calls_in_flight == 0; }));
}

// Each allocation for the line about the exception fails once, also those of the sink.
TEST(BackgroundWorkMemory, AThrownTaskNeedsNone) {
  constexpr long positions = 6;  // More than there are for a line.
  thread_of_client = true;
  for (long position = 0; position < positions; ++position) {
    std::atomic<int> lines = 0;
    const LogSink sink = [&lines](LogLevel, std::string_view, std::string_view text) {
      const std::string longer = "a line that does not fit into a string: " + std::string(text);
      lines += longer.find("background work threw an exception") == std::string::npos ? 0 : 1;
    };
    Server server({.listen = "127.0.0.1:0", .loop = {.log = sink}});
    server.register_handler<echo_view>();
    std::atomic<bool> thrown = false;
    ASSERT_TRUE(server.spawn([&thrown, position](Background) -> Task<void> {
      thrown = true;
      allocations_left = position;
      throw std::bad_alloc();
      co_return;
    }));
    ASSERT_TRUE(server.start());
    EXPECT_TRUE(soon([&] { return thrown && (lines != 0 || allocations_left < 0); }));
    allocations_left = -1;
    sync_wait([](const std::string& address) -> Task<void> {
      Client client;
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<echo_view>("hello");
      EXPECT_EQ(reply, "hello");
    }(server.address()));
  }
  thread_of_client = false;
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const Kind& kind : kinds) {
    for (const char* transport : {"stream", "shm"}) all.push_back({kind, transport});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachAllocation, ::testing::ValuesIn(parameters()), [](const auto& info) {
  return std::string(info.param.kind.name) + "_" + info.param.transport;
});

}  // namespace hawser::out_of_memory
