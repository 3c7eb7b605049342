// Limits on the memory and time that received values may cost: DecodeLimits of server and client, over a real
// connection.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::bounds_test {

using namespace testing_tools;

struct Row {
  std::string a, b, c, d, e, f, g, h;
};
using Rows = std::vector<std::optional<Row>>;
using Numbers = std::unordered_map<std::uint64_t, std::uint64_t>;

std::size_t count_rows(Rows rows) { return rows.size(); }
Task<std::size_t> count_rows_later(Rows rows) { co_return rows.size(); }
Rows make_rows(std::size_t count) { return Rows(count); }
std::size_t count_numbers(const Numbers& numbers) { return numbers.size(); }
Task<std::size_t> count_all(Reader<Rows> reader) {
  std::size_t count = 0;
  for (;;) {
    auto rows = co_await reader.next();
    if (!rows) co_return 1'000'000;
    if (!*rows) co_return count;
    count += (*rows)->size();
  }
}

class Bounds : public ::testing::Test {
 protected:
  // Runs `body` with a server and a client on one loop.
  template <class Body>
  void serve(ServerOptions server_with, ClientOptions client_with, Body body) {
    server_with.listen = "127.0.0.1:0";
    client_with.transports.required = "stream";
    Loop loop;
    Server server(loop, std::move(server_with));
    server.register_handler<count_rows, count_rows_later, make_rows, count_numbers, count_all>();
    const Result<void> started = server.start();
    ASSERT_TRUE(started) << error_of(started);
    loop.run([](Server& own, ClientOptions with, Body use) -> Task<void> {
      Client client(std::move(with));
      auto connected = co_await client.connect(own.address());
      REQUIRE_OK(connected);
      co_await use(client);
      client.close();
      co_await own.shut_down(patience);
    }(server, std::move(client_with), std::move(body)));
    EXPECT_EQ(server.counters().calls_in_flight, 0U);
  }
};

TEST_F(Bounds, MemoryOfArgumentsIsBoundedByTheRequestsLength) {
  serve({}, {}, [](Client& client) -> Task<void> {
    const Rows fitting(1'000);
    auto few = co_await client.call<count_rows>(fitting);
    EXPECT_EQ(few, 1'000U);
    const Rows many(50'000);  // 50 KB on the wire, 13 MB in memory.
    auto refused = co_await client.call<count_rows>(many);
    EXPECT_ERROR(refused, limit_exceeded, "memory_factor_max");
    auto later = co_await client.call<count_rows_later>(many);
    EXPECT_ERROR(later, limit_exceeded, "memory_factor_max");
    const Rows one(1);
    auto after = co_await client.call<count_rows>(one);
    EXPECT_EQ(after, 1U);
  });
}

TEST_F(Bounds, DecodeLimitsAreOptionsOfTheServer) {
  const ServerOptions options{.decode_limits = {.memory_factor_max = 400}};
  serve(options, {}, [](Client& client) -> Task<void> {
    const Rows rows(50'000);
    auto many = co_await client.call<count_rows>(rows);
    EXPECT_EQ(many, 50'000U);
  });
}

TEST_F(Bounds, DecodeLimitsAreOptionsOfTheClient) {
  serve({}, {}, [](Client& client) -> Task<void> {
    auto refused = co_await client.call<make_rows>(50'000U);
    EXPECT_ERROR(refused, limit_exceeded, "memory_factor_max");
    auto whole = co_await client.call<make_rows>(50'000U).reply();
    EXPECT_ERROR(whole, limit_exceeded, "memory_factor_max");
  });
  const ClientOptions options{.decode_limits = {.memory_factor_max = 400}};
  serve({}, options, [](Client& client) -> Task<void> {
    auto many = co_await client.call<make_rows>(50'000U);
    REQUIRE_OK(many);
    EXPECT_EQ(many->size(), 50'000U);
    auto whole = co_await client.call<make_rows>(50'000U).reply();
    EXPECT_OK(whole);
  });
}

TEST_F(Bounds, DecodeLimitsHoldForStreamItems) {
  for (const bool raised : {false, true}) {
    ServerOptions options;
    if (raised) options.decode_limits.memory_factor_max = 400;
    serve(options, {}, [raised](Client& client) -> Task<void> {
      auto opened = co_await client.open<count_all>();
      REQUIRE_OK(opened);
      auto writer = opened->writer();
      const Rows many(50'000);
      auto written = co_await writer.write(many);
      EXPECT_OK(written);
      auto count = co_await opened->finish();
      EXPECT_EQ(count, raised ? 50'000U : 1'000'000U);
    });
  }
}

// The sender can choose keys that collide in spite of a good hash: a request of 100 KB would block the loop noticeably,
// one of 1 MB for seconds.
TEST_F(Bounds, KeysChosenToCollideAreRefused) {
  serve({}, {}, [](Client& client) -> Task<void> {
    constexpr std::size_t count = 6'000;
    Numbers target;
    target.reserve(count);
    Numbers chosen;
    chosen.reserve(4 * count);
    for (std::size_t i = 0; i < count; ++i) chosen.emplace(i * target.bucket_count(), i);
    auto refused = co_await client.call<count_numbers>(chosen);
    EXPECT_ERROR(refused, limit_exceeded, "bucket_passes_max");
    Numbers honest;
    for (std::size_t i = 0; i < count; ++i) honest.emplace(i * 4096, i);
    auto counted = co_await client.call<count_numbers>(honest);
    EXPECT_EQ(counted, count);
  });
}

}  // namespace hawser::bounds_test
