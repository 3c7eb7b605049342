#include <future>
#include <thread>

#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"

// Data and control beside the arguments: errors, deadlines, cancellation, attachments, metadata, blocking handlers.
namespace hawser::conformance {

TEST_P(Conformance, ErrorsOfHandlersReachTheCaller) {
  serve<half, accept_even, later_error, throws, later_throws, echo>(
      frank_options(), {}, [](Server&, Client& client) -> Task<void> {
        auto good = co_await client.call<half>(8U);
        EXPECT_EQ(good, 4U);
        auto odd = co_await client.call<half>(7U);
        EXPECT_ERROR(odd, application, "odd");
        if (!odd) {
          EXPECT_EQ(odd.error().application_code, 42);
          EXPECT_EQ(odd.error().scope, ErrorScope::call);
          EXPECT_EQ(odd.error().initiator, Initiator::peer);
        }
        auto even = co_await client.call<accept_even>(2U);
        EXPECT_OK(even);
        auto refused = co_await client.call<accept_even>(3U);
        EXPECT_ERROR(refused, application, "odd as well");
        if (!refused) {
          EXPECT_EQ(refused.error().application_code, -7);
        }
        auto later = co_await client.call<later_error>();
        EXPECT_ERROR(later, application, "later");

        auto thrown = co_await client.call<throws>(0);
        EXPECT_ERROR(thrown, internal, "the handler threw an exception: no such thing");
        auto number = co_await client.call<throws>(1);
        EXPECT_ERROR(number, internal, "is not a std::exception");
        auto thrown_later = co_await client.call<later_throws>();
        EXPECT_ERROR(thrown_later, internal, "thrown later");
        auto after = co_await client.call<echo>("goes on");
        EXPECT_EQ(after, "goes on");
      });
}

TEST_P(Conformance, HandlersKnowTheirCall) {
  serve<about, remaining_ms>([](Server&, Client& client) -> Task<void> {
    auto plain = co_await client.call<about>();
    EXPECT_EQ(plain, "peer=yes deadline no-token");  // The client's default timeout sets a deadline.
    const CallOptions unlimited_options{.timeout = forever};
    auto unlimited = co_await client.call<about>(unlimited_options);
    EXPECT_EQ(unlimited, "peer=yes forever no-token");
    const CallOptions none_options{.timeout = forever};
    auto none = co_await client.call<remaining_ms>(none_options);
    EXPECT_EQ(none, -1);
    for (const Duration timeout : {Duration(20s), Duration(2min), Duration(3h), Duration(24h)}) {
      const CallOptions left_options{.timeout = timeout};
      auto left = co_await client.call<remaining_ms>(left_options);
      REQUIRE_OK(left);
      const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
      EXPECT_LE(*left, whole + 1);
      EXPECT_GT(*left, whole - 10'000);
    }
  });
}

TEST_P(Conformance, AttachmentsAndMetadataTravelBothWays) {
  serve<reflect, reflect_later, about>([](Server&, Client& client) -> Task<void> {
    const Metadata metadata{{"trace", "1234"}, {"empty", ""}, {"long", text_of(20'000)}, {"trace", "again"}};
    for (const std::size_t bytes : {0UL, 1UL, 4'000UL, 8'192UL, 40'000UL, 3UL << 20}) {
      for (const std::size_t text_bytes : {3UL, 9'001UL, 40'000UL}) {
        const std::string attached = text_of(bytes, 'A');
        const std::string text = text_of(text_bytes);
        const CallOptions options{.attachment = as_bytes(attached), .metadata = metadata};
        auto at_once = co_await client.call<reflect>(options, text).reply();
        REQUIRE_OK(at_once);
        EXPECT_EQ(at_once->value(), bytes + text_bytes);
        EXPECT_TRUE(as_text(at_once->attachment()) == attached);
        EXPECT_EQ(at_once->metadata().copy(), metadata);
        EXPECT_EQ(at_once->metadata().find("trace"), "1234");
        EXPECT_FALSE(at_once->metadata().find("none"));
        auto later = co_await client.call<reflect_later>(options, text).reply();
        REQUIRE_OK(later);
        EXPECT_TRUE(as_text(later->attachment()) == attached);
        EXPECT_EQ(later->metadata().copy(), metadata);

        std::vector<std::byte> memory(3 << 20);
        auto landed = co_await client.call<reflect>(options, text).into(memory);
        REQUIRE_OK(landed);
        EXPECT_TRUE(as_text(landed->attachment()) == attached);
        if (bytes != 0) {
          EXPECT_EQ(static_cast<const void*>(landed->attachment().data()), memory.data());
        }
        if (bytes > 1) {
          std::vector<std::byte> narrow(bytes - 1);
          auto refused = co_await client.call<reflect>(options, text).into(narrow);
          EXPECT_ERROR(refused, limit_exceeded, "into()");
        }
      }
    }
  });
}

TEST_P(Conformance, MetadataIsBounded) {
  serve<about, add_entries>([](Server&, Client& client) -> Task<void> {
    const CallOptions most_options{.metadata = Metadata(64, {"k", "v"})};
    auto most = co_await client.call<about>(most_options);
    EXPECT_OK(most);
    const CallOptions many_options{.metadata = Metadata(65, {"k", "v"})};
    auto many = co_await client.call<about>(many_options);
    EXPECT_ERROR(many, limit_exceeded, "64 entries");
    const CallOptions key_options{.metadata = {{std::string(255, 'k'), ""}}};
    auto key = co_await client.call<about>(key_options);
    EXPECT_OK(key);
    const CallOptions long_key_options{.metadata = {{std::string(256, 'k'), ""}}};
    auto long_key = co_await client.call<about>(long_key_options);
    EXPECT_ERROR(long_key, limit_exceeded, "a key of 256 bytes");
    const CallOptions largest_options{.metadata = {{"k", std::string(65'531, 'v')}}};
    auto largest = co_await client.call<about>(largest_options);
    EXPECT_OK(largest);
    const CallOptions too_large_options{.metadata = {{"k", std::string(65'532, 'v')}}};
    auto too_large = co_await client.call<about>(too_large_options);
    EXPECT_ERROR(too_large, limit_exceeded, "65535 bytes in all");
    const CallOptions way_too_large_options{.metadata = {{"k", std::string(70'000, 'v')}}};
    auto way_too_large = co_await client.call<about>(way_too_large_options);
    EXPECT_ERROR(way_too_large, limit_exceeded, "65535 bytes in all");

    auto back = co_await client.call<add_entries>(64U, 10U).reply();
    REQUIRE_OK(back);
    EXPECT_EQ(back->metadata().copy().size(), 64U);
    auto back_many = co_await client.call<add_entries>(65U, 10U);
    EXPECT_ERROR(back_many, limit_exceeded, "64 entries");
    auto back_long = co_await client.call<add_entries>(2U, 40'000U);
    EXPECT_ERROR(back_long, limit_exceeded, "65535 bytes in all");
    auto after = co_await client.call<about>();
    EXPECT_OK(after);
  });
}

TEST_P(Conformance, TimeoutsEndOneCallOnly) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_stop>(&service);
  server->register_handler<slow_echo>();
  run_connected(*server, {.call_timeout = 50ms}, [&](Server&, Client& client) -> Task<void> {
    const CallOptions neighbour_options{.timeout = 20s};
    auto neighbour = co_await client.send_request<slow_echo>(neighbour_options, "neighbour", 300U);
    REQUIRE_OK(neighbour);
    const Time begin = loop().now();
    const CallOptions own_options{.timeout = 20ms};
    auto own = co_await client.call<&TestService::wait_for_stop>(own_options);
    EXPECT_ERROR(own, deadline_exceeded, "timeout");
    EXPECT_GE(loop().now() - begin, 20ms);
    auto by_default = co_await client.call<&TestService::wait_for_stop>();
    EXPECT_ERROR(by_default, deadline_exceeded, "timeout");
    const CallOptions at_once_options{.timeout = Duration(0)};
    auto at_once = co_await client.call<&TestService::wait_for_stop>(at_once_options);
    EXPECT_ERROR(at_once, deadline_exceeded, "timeout");
    const CallOptions negative_options{.timeout = -5s};
    auto negative = co_await client.call<&TestService::wait_for_stop>(negative_options);
    EXPECT_ERROR(negative, deadline_exceeded, "timeout");
    // The handlers receive the cancellation too.
    auto notified = co_await eventually(loop(), [&] { return service.waiting == 0; });
    EXPECT_TRUE(notified);
    EXPECT_GE(service.stopped, 2);
    auto reply = co_await std::move(*neighbour);
    EXPECT_EQ(reply, "neighbour");
  });
}

TEST_P(Conformance, TokensCancelCalls) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_stop>(&service);
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    std::stop_source source;
    Scope scope;
    int cancelled = 0;
    auto one = [&]() -> Task<void> {
      const CallOptions outcome_options{.timeout = forever, .token = source.get_token()};
      auto outcome = co_await client.call<&TestService::wait_for_stop>(outcome_options);
      EXPECT_ERROR(outcome, cancelled, "cancelled");
      ++cancelled;
    };
    for (int i = 0; i < 10; ++i) scope.spawn(one());
    auto begun = co_await eventually(loop(), [&] { return service.waiting == 10; });
    EXPECT_TRUE(begun);
    source.request_stop();
    co_await scope.join();
    EXPECT_EQ(cancelled, 10);
    auto notified = co_await eventually(loop(), [&] { return service.stopped == 10; });
    EXPECT_TRUE(notified);

    // A call whose token was stopped before it begins.
    const CallOptions late_options{.timeout = forever, .token = source.get_token()};
    auto late = co_await client.call<&TestService::wait_for_stop>(late_options);
    EXPECT_ERROR(late, cancelled, "cancelled");
    // A call that ends before its token is stopped.
    std::stop_source unused;
    const CallOptions reply_options{.token = unused.get_token()};
    auto reply = co_await client.call<echo>(reply_options, "hello");
    EXPECT_EQ(reply, "hello");
    unused.request_stop();
    auto free = co_await eventually(loop(), [&] { return client.calls_in_flight() == 0; });
    EXPECT_TRUE(free);
  });
}

TEST_P(Conformance, AnyThreadMayCancel) {
  if (!backend->real_time()) GTEST_SKIP() << "a simulation has one thread";
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_stop>(&service);
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    for (int i = 0; i < 50; ++i) {
      std::stop_source source;
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * (i % 20)));
        source.request_stop();
      });
      if (i % 2 == 0) {
        const CallOptions outcome_options{.timeout = forever, .token = source.get_token()};
        auto outcome = co_await client.call<&TestService::wait_for_stop>(outcome_options);
        EXPECT_ERROR(outcome, cancelled, "cancelled");
      } else {
        // The reply and the cancellation race: either may win.
        const CallOptions outcome_options{.token = source.get_token()};
        auto outcome = co_await client.call<echo>(outcome_options, "hello");
        if (!outcome) {
          EXPECT_ERROR(outcome, cancelled, "cancelled");
        }
      }
      other.join();
    }
    auto notified = co_await eventually(loop(), [&] { return service.waiting == 0; });
    EXPECT_TRUE(notified);
  });
}

TEST_P(Conformance, BlockingHandlersDoNotStallTheLoop) {
  if (!backend->real_time()) GTEST_SKIP() << "nothing blocks in a simulation";
  auto server = make_server(frank_options());
  server->register_handler<block_until, block_about, block_throws>({.offload = true});
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    std::promise<void> release;
    blocked_until = release.get_future().share();
    auto blocking = co_await client.send_request<block_until>();
    REQUIRE_OK(blocking);
    // The handler blocks for many round trips, so the call is in flight before and after them.
    auto taken = co_await eventually(loop(), [&] { return own.counters().calls_in_flight == 1; });
    EXPECT_TRUE(taken);
    for (int i = 0; i < 20; ++i) {
      auto reply = co_await client.call<echo>("hello");
      EXPECT_EQ(reply, "hello");
    }
    EXPECT_EQ(own.counters().calls_in_flight, 1U);
    release.set_value();
    auto blocked = co_await std::move(*blocking);
    EXPECT_EQ(blocked, 1U);

    const std::string text = text_of(20'000);
    auto about_it = co_await client.call<block_about>(text).reply();
    REQUIRE_OK(about_it);
    EXPECT_TRUE(about_it->value() == text + " token");
    EXPECT_EQ(about_it->metadata().find("from"), "offload");
    auto thrown = co_await client.call<block_throws>(1);
    EXPECT_ERROR(thrown, internal, "thrown while blocking");
    // The caller does not wait for a handler that can't be interrupted.
    std::promise<void> release_late;
    blocked_until = release_late.get_future().share();
    const CallOptions timed_out_options{.timeout = 5ms};
    auto timed_out = co_await client.call<block_until>(timed_out_options);
    EXPECT_ERROR(timed_out, deadline_exceeded, "timeout");
    release_late.set_value();
    co_await own.shut_down(10s);
  });
}

TEST_P(Conformance, BlockingWorkIsBounded) {
  if (!backend->real_time()) GTEST_SKIP() << "nothing blocks in a simulation";
  ServerOptions options = server_options();
  options.loop.offload_threads_max = 1;
  options.loop.offload_queue_max = 1;
  auto server = make_threaded_server(options);
  server->register_handler<block_until>({.offload = true});
  server->register_handler<echo>();
  ASSERT_TRUE(server->start());
  std::promise<void> release;
  blocked_until = release.get_future().share();
  run([&]() -> Task<void> {
    auto client = make_client();
    auto connected = co_await client->connect(server->address());
    REQUIRE_OK(connected);
    std::vector<PendingCall<block_until>> pending;
    for (int i = 0; i < 10; ++i) {
      auto sent = co_await client->send_request<block_until>();
      REQUIRE_OK(sent);
      pending.push_back(std::move(*sent));
    }
    // Refused calls are answered at once. The others block until they are released.
    auto refused =
        co_await eventually(loop(), [&] { return server->counters().calls == 10 && client->calls_in_flight() <= 2; });
    EXPECT_TRUE(refused);
    release.set_value();
    int done = 0;
    for (auto& one : pending) {
      auto outcome = co_await std::move(one);
      if (outcome) {
        ++done;
      } else {
        EXPECT_ERROR(outcome, overloaded, "offload_queue_max");
      }
    }
    EXPECT_GE(done, 1);
    EXPECT_LE(done, 3);
    auto after = co_await client->call<echo>("goes on");
    EXPECT_EQ(after, "goes on");
  });
}

}  // namespace hawser::conformance
