#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"
#include "tests/conformance/stream_handlers.h"

namespace hawser::conformance {

TEST_P(Conformance, ServersStream) {
  serve<count_up>([](Server&, Client& client) -> Task<void> {
    for (const std::uint32_t count : {0U, 1U, 10U, 20'000U}) {
      auto call = co_await client.open<count_up>(count);
      REQUIRE_OK(call);
      auto reader = call->reader();
      std::uint32_t next = 0;
      for (;;) {
        auto item = co_await reader.next();
        REQUIRE_OK(item);
        if (!*item) break;
        EXPECT_EQ(**item, next);
        ++next;
      }
      EXPECT_EQ(next, count);
      auto result = co_await call->finish();
      EXPECT_EQ(result, count);
    }
  });
}

TEST_P(Conformance, WritersKeepItemsThatAreGivenUp) {
  serve<hand_over>([](Server&, Client& client) -> Task<void> {
    auto call = co_await client.open<hand_over>(3U);
    REQUIRE_OK(call);
    auto reader = call->reader();
    std::uint32_t count = 0;
    for (;; ++count) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      if (!*item) break;
      EXPECT_EQ(**item, std::string(1000, 'k'));
    }
    EXPECT_EQ(count, 4U);
    auto result = co_await call->finish();
    EXPECT_EQ(result, 3U);
  });
}

TEST_P(Conformance, ClientsStream) {
  serve<sum_up>([](Server&, Client& client) -> Task<void> {
    for (const std::uint64_t count : {0UL, 1UL, 20'000UL}) {
      auto call = co_await client.open<sum_up>();
      REQUIRE_OK(call);
      auto writer = call->writer();
      for (std::uint64_t i = 0; i < count; ++i) {
        auto written = co_await writer.write(i);
        REQUIRE_OK(written);
      }
      auto result = co_await call->finish();
      EXPECT_EQ(result, count * (count - std::min<std::uint64_t>(count, 1)) / 2);
    }
    auto call = co_await client.open<sum_up>();
    REQUIRE_OK(call);
    auto writer = call->writer();
    writer.end();
    auto written = co_await writer.write(1);
    EXPECT_ERROR(written, invalid_argument, "after end()");
    auto result = co_await call->finish();
    EXPECT_EQ(result, 0U);
  });
}

TEST_P(Conformance, BothSidesStream) {
  serve<converse>([](Server&, Client& client) -> Task<void> {
    auto call = co_await client.open<converse>("welcome");
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto writer = call->writer();
    auto greeting = co_await reader.next();
    REQUIRE_OK(greeting);
    EXPECT_EQ(*greeting, "welcome");
    for (const std::size_t bytes : {0UL, 1UL, 5'000UL, 9'000UL, 50'000UL, 1UL << 20}) {
      const std::string text = text_of(bytes);
      auto written = co_await writer.write(text);
      REQUIRE_OK(written);
      auto answer = co_await reader.next();
      REQUIRE_OK(answer);
      EXPECT_TRUE(*answer == text + "?") << bytes;
    }
    writer.end();
    auto end = co_await reader.next();
    REQUIRE_OK(end);
    EXPECT_FALSE(*end);
    auto result = co_await call->finish();
    EXPECT_EQ(result, 6U);
  });
}

TEST_P(Conformance, ManyStreamsAtOnce) {
  serve<converse, count_up>([](Server&, Client& client) -> Task<void> {
    Scope scope;
    int good = 0;
    auto one = [&](int index) -> Task<void> {
      auto call = co_await client.open<converse>(std::to_string(index));
      REQUIRE_OK(call);
      auto reader = call->reader();
      auto writer = call->writer();
      auto greeting = co_await reader.next();
      EXPECT_TRUE(greeting && *greeting == std::to_string(index));
      for (int i = 0; i < 30; ++i) {
        const std::string text = std::to_string(i);
        auto written = co_await writer.write(text);
        REQUIRE_OK(written);
      }
      for (int i = 0; i < 30; ++i) {
        auto answer = co_await reader.next();
        EXPECT_TRUE(answer && *answer == std::to_string(i) + "?");
      }
      auto result = co_await call->finish();
      good += result == 30U;
    };
    for (int i = 0; i < 100; ++i) scope.spawn(one(i));
    co_await scope.join();
    EXPECT_EQ(good, 100);
  });
}

// The bytes between a writer and a reader that does not read are limited by the window and one item.
TEST_P(Conformance, WritersWaitForReaders) {
  constexpr std::uint32_t window = 64 * 1024;
  constexpr std::uint32_t item_bytes = 1'000;
  Streamer streamer;
  ServerOptions server_with = server_options();
  server_with.stream_window_bytes = window;
  auto server = make_server(server_with);
  server->register_handler<&Streamer::pour, &Streamer::swallow>(&streamer);
  server->register_handler<echo>();
  run_connected(*server, {.stream_window_bytes = window}, [&](Server&, Client& client) -> Task<void> {
    // The server writes.
    {
      const CallOptions call_options{.timeout = forever};
      auto call = co_await client.open<&Streamer::pour>(call_options, item_bytes);
      REQUIRE_OK(call);
      auto begun = co_await eventually(loop(), [&] { return streamer.written > 0; });
      EXPECT_TRUE(begun);
      for (int i = 0; i < 50; ++i) {
        auto other = co_await client.call<echo>("goes on");
        EXPECT_OK(other);
      }
      const std::uint64_t stored = streamer.written;
      EXPECT_LE(stored * item_bytes, window + item_bytes);
      EXPECT_GE(stored * item_bytes, window / 2);
      auto reader = call->reader();
      for (std::uint64_t i = 0; i < stored; ++i) {
        auto item = co_await reader.next();
        REQUIRE(item && *item && (*item)->size() == item_bytes);
      }
      auto more = co_await eventually(loop(), [&] { return streamer.written > stored; });
      EXPECT_TRUE(more);
      EXPECT_LE(streamer.written * item_bytes, stored * item_bytes + window + item_bytes);
    }
    auto ended = co_await eventually(loop(), [&] { return streamer.ended; });
    EXPECT_TRUE(ended);
    REQUIRE(streamer.last_error);
    EXPECT_EQ(streamer.last_error->code, ErrorCode::cancelled);

    // The client writes.
    auto call = co_await client.open<&Streamer::swallow>();
    REQUIRE_OK(call);
    auto writer = call->writer();
    const std::string item(item_bytes, 'c');
    std::uint64_t written = 0;
    Scope scope;
    scope.spawn([](auto& to, const std::string& what, std::uint64_t& count) -> Task<void> {
      for (int i = 0; i < 500; ++i) {
        auto result = co_await to.write(what);
        REQUIRE_OK(result);
        ++count;
      }
      to.end();
    }(writer, item, written));
    for (int i = 0; i < 50; ++i) {
      auto other = co_await client.call<echo>("goes on");
      EXPECT_OK(other);
    }
    EXPECT_LE(written * item_bytes, window + item_bytes);
    EXPECT_GE(written * item_bytes, window / 2);
    streamer.gate = true;
    co_await scope.join();
    auto result = co_await call->finish();
    EXPECT_EQ(result, 500U * item_bytes);
  });
}

// Empty items use up credit too.
TEST_P(Conformance, EmptyItemsAreBounded) {
  Streamer streamer;
  auto server = make_server();
  server->register_handler<&Streamer::pour>(&streamer);
  server->register_handler<echo>();
  run_connected(*server, {.stream_window_bytes = 6'400}, [&](Server&, Client& client) -> Task<void> {
    const CallOptions call_options{.timeout = forever};
    auto call = co_await client.open<&Streamer::pour>(call_options, 0U);
    REQUIRE_OK(call);
    for (int i = 0; i < 50; ++i) {
      auto other = co_await client.call<echo>("goes on");
      EXPECT_OK(other);
    }
    EXPECT_LE(streamer.written, 101U);
    EXPECT_GE(streamer.written, 50U);
  });
}

TEST_P(Conformance, StreamsEndEarly) {
  Streamer streamer;
  auto server = make_server();
  server->register_handler<&Streamer::ignore>(&streamer);
  server->register_handler<echo, count_up>();
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    auto call = co_await client.open<&Streamer::ignore>();
    REQUIRE_OK(call);
    auto writer = call->writer();
    const std::string item(50'000, 'i');
    Result<void> written;
    int count = 0;
    while (written && count < 1'000) {
      auto result = co_await writer.write(item);
      written = std::move(result);
      ++count;
    }
    EXPECT_ERROR(written, cancelled, "the call has ended");
    auto result = co_await call->finish();
    EXPECT_EQ(result, 50'000U);

    // A reader that stops reading early.
    {
      auto counting = co_await client.open<count_up>(1'000'000U);
      REQUIRE_OK(counting);
      auto reader = counting->reader();
      auto first = co_await reader.next();
      EXPECT_TRUE(first && *first == 0U);
    }
    auto free = co_await eventually(loop(), [&] { return client.calls_in_flight() == 0; });
    EXPECT_TRUE(free);
    auto other = co_await client.call<echo>("goes on");
    EXPECT_EQ(other, "goes on");
  });
}

TEST_P(Conformance, HandlersMayFailMidStream) {
  for (const bool throwing : {false, true}) {
    Streamer streamer;
    streamer.throwing = throwing;
    auto server = make_server(frank_options());
    server->register_handler<&Streamer::stumble>(&streamer);
    server->register_handler<echo>();
    run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
      auto call = co_await client.open<&Streamer::stumble>(3U);
      REQUIRE_OK(call);
      auto reader = call->reader();
      auto writer = call->writer();
      for (std::uint32_t i = 0; i < 10; ++i) {
        auto written = co_await writer.write(i);
        if (!written) break;
      }
      // Items that were written before the failure arrive, then the end.
      for (std::uint32_t i = 0; i < 3; ++i) {
        auto item = co_await reader.next();
        EXPECT_TRUE(item && *item == i) << i << error_of(item);
      }
      auto none = co_await reader.next();
      EXPECT_TRUE(!none || !*none);
      auto result = co_await call->finish();
      if (throwing) {
        EXPECT_ERROR(result, internal, "stumbled");
      } else {
        EXPECT_ERROR(result, application, "stumbled");
      }
      auto other = co_await client.call<echo>("goes on");
      EXPECT_EQ(other, "goes on");
    });
  }
}

TEST_P(Conformance, StreamsAreCancelledAndTimedOut) {
  Streamer streamer;
  auto server = make_server();
  server->register_handler<&Streamer::swallow, &Streamer::pour>(&streamer);
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    std::stop_source source;
    const CallOptions call_options{.timeout = forever, .token = source.get_token()};
    auto call = co_await client.open<&Streamer::pour>(call_options, 100U);
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto first = co_await reader.next();
    EXPECT_TRUE(first && *first);
    source.request_stop();
    Result<std::optional<std::string>> item;
    do {
      auto next = co_await reader.next();
      item = std::move(next);
    } while (item && *item);
    EXPECT_ERROR(item, cancelled, "cancelled");
    auto result = co_await call->finish();
    EXPECT_ERROR(result, cancelled, "cancelled");
    auto notified = co_await eventually(loop(), [&] { return streamer.ended; });
    EXPECT_TRUE(notified);

    streamer.ended = false;
    const CallOptions timed_options{.timeout = 20ms};
    auto timed = co_await client.open<&Streamer::swallow>(timed_options);
    REQUIRE_OK(timed);
    auto outcome = co_await timed->finish();
    EXPECT_ERROR(outcome, deadline_exceeded, "timeout");
    auto ended = co_await eventually(loop(), [&] { return streamer.ended && own.counters().calls_in_flight == 0; });
    EXPECT_TRUE(ended);
    auto other = co_await client.call<echo>("goes on");
    EXPECT_EQ(other, "goes on");
  });
}

}  // namespace hawser::conformance
