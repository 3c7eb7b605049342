#include "tests/conformance/backend.h"
#include "tests/conformance/stream_handlers.h"

// Stream items that are read in place, and the deadline of calls with streams.
namespace hawser::conformance {

TEST_P(Conformance, ClientsReadItemsInPlace) {
  serve<pour_numbers>([](Server&, Client& client) -> Task<void> {
    std::vector<std::uint32_t> values(100'000);
    for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i * 7;
    auto call = co_await client.open<pour_numbers>(values);
    REQUIRE_OK(call);
    auto reader = call->reader();
    for (std::size_t size = values.size();; size /= 2) {
      auto item = co_await reader.read_view();
      REQUIRE_OK(item);
      REQUIRE(*item);
      const std::span<const std::uint32_t> view = **item;
      EXPECT_TRUE(std::equal(view.begin(), view.end(), values.begin(), values.begin() + static_cast<long>(size)));
      if (size == 0) break;
    }
    auto end = co_await reader.read_view();
    REQUIRE_OK(end);
    EXPECT_FALSE(*end);
    auto result = co_await call->finish();
    EXPECT_OK(result);
  });
}

TEST_P(Conformance, HandlersReadItemsInPlace) {
  serve<sum_in_place>([](Server& server, Client& client) -> Task<void> {
    auto call = co_await client.open<sum_in_place>();
    REQUIRE_OK(call);
    auto writer = call->writer();
    std::uint64_t sum = 0;
    char letter = 'a';
    for (const std::size_t bytes : {0UL, 1UL, 5'000UL, 9'000UL, 50'000UL, 600'000UL, 3UL}) {
      const std::string text(bytes, letter++);
      auto written = co_await writer.write(text);
      REQUIRE_OK(written);
      sum += bytes;
    }
    auto result = co_await call->finish();
    EXPECT_EQ(result, sum);
    // The memory of the last view is not charged any more.
    EXPECT_LT(server.counters().receive_bytes, 600'000U);
  });
}

TEST_P(Conformance, StreamsHaveNoDeadlineUnlessAsked) {
  serve<answer_late>(server_options(), {.call_timeout = 20ms}, [](Server&, Client& client) -> Task<void> {
    auto call = co_await client.open<answer_late>(60U);
    REQUIRE_OK(call);
    auto result = co_await call->finish();
    EXPECT_EQ(result, 1);
    const CallOptions options{.timeout = 20ms};
    auto limited = co_await client.open<answer_late>(options, 60'000U);
    REQUIRE_OK(limited);
    auto late = co_await limited->finish();
    EXPECT_ERROR(late, deadline_exceeded, "");
  });
}

}  // namespace hawser::conformance
