#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "hawser/hawser.h"
#include "tests/out_of_memory/block_limit.h"
#include "tests/testing.h"

// Each allocation of a server that serves a peer fails once. The connection may end, the server serves others.
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
};
const std::vector<Kind> kinds = {
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
  ~EachAllocation() override {
    allocations_left = -1;
    spared = false;
  }
};

TEST_P(EachAllocation, OfAServerMayFail) {
  spared = true;
  Server server({.listen = "127.0.0.1:0", .loop = {.log = no_log()}});
  server.register_handler<echo_view, echo_later, count_parts, shout>();
  ASSERT_TRUE(server.start());
  const ClientOptions options{.call_timeout = patience, .transports = {.required = GetParam().transport}};
  long position = 0;
  for (bool failed = true; failed; ++position) {
    ASSERT_LT(position, 2000);
    Loop loop(LoopOptions{.log = no_log()});
    Client client(loop, options);
    loop.run([](Client& own, const std::string& address, Task<void> (*use)(Client&), long at) -> Task<void> {
      auto connected = co_await own.connect(address);
      REQUIRE_OK(connected);
      allocations_left = at;
      co_await use(own);
    }(client, server.address(), GetParam().kind.use, position));
    failed = allocations_left.exchange(-1) < 0;
    Client other(loop, options);
    loop.run([](Client& own, const std::string& address, long at) -> Task<void> {
      auto connected = co_await own.connect(address);
      REQUIRE_OK(connected);
      auto reply = co_await own.call<echo_view>("hello");
      EXPECT_EQ(reply, "hello") << "after the failure of allocation " << at;
    }(other, server.address(), position));
  }
  RecordProperty("allocations", static_cast<int>(position));
  EXPECT_TRUE(soon([&] { return server.counters().calls_in_flight == 0; }));
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
