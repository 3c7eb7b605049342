#include <array>

#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"
#include "tests/conformance/stream_handlers.h"
#include "wire/hello.h"

// Each limit: whatever exceeds it fails with an error that names the limit, and everything else continues.
namespace hawser::conformance {
namespace kept {

bool keeps_requests = false;

// Keeps its request until keeps_requests is false.
Task<std::size_t> length_when_notified(Context& context, std::string_view text) {
  while (keeps_requests) {
    co_await context.loop().sleep(1ms);
  }
  co_return text.size();
}

}  // namespace kept
using namespace kept;

TEST_P(Conformance, CallsOfAConnectionAreBounded) {
  for (const bool by_server : {false, true}) {
    TestService service;
    ServerOptions server_with = server_options();
    ClientOptions client_with;
    if (by_server) {
      server_with.calls_per_connection_max = 4;
    } else {
      client_with.calls_in_flight_max = 4;
    }
    auto server = make_server(server_with);
    server->register_handler<&TestService::wait_for_gate>(&service);
    run_connected(*server, client_with, [&](Server& own, Client& client) -> Task<void> {
      std::vector<PendingCall<&TestService::wait_for_gate>> pending;
      for (int i = 0; i < 4; ++i) {
        auto sent = co_await client.send_request<&TestService::wait_for_gate>();
        REQUIRE_OK(sent);
        pending.push_back(std::move(*sent));
      }
      auto fifth = co_await client.call<&TestService::wait_for_gate>();
      EXPECT_ERROR(fifth, overloaded, "the connection has 4 calls in flight already");
      EXPECT_ERROR(fifth, overloaded, "calls_per_connection_max");
      // Another connection has its own limit.
      auto other = make_client();
      auto connected = co_await other->connect(own.address());
      REQUIRE_OK(connected);
      auto also = co_await other->send_request<&TestService::wait_for_gate>();
      REQUIRE_OK(also);
      // A cancelled call counts until the server has answered it.
      pending.pop_back();
      auto still = co_await client.call<&TestService::wait_for_gate>();
      EXPECT_ERROR(still, overloaded, "4 calls");
      service.gate = true;
      for (auto& one : pending) {
        auto done = co_await std::move(one);
        EXPECT_EQ(done, 1);
      }
      auto other_done = co_await std::move(*also);
      EXPECT_EQ(other_done, 1);
      auto free = co_await eventually(loop(), [&] { return client.calls_in_flight() == 0; });
      EXPECT_TRUE(free);
      auto after = co_await client.call<&TestService::wait_for_gate>();
      EXPECT_EQ(after, 1);
    });
  }
}

TEST_P(Conformance, CallsOfAServerAreBounded) {
  TestService service;
  ServerOptions options = server_options();
  options.calls_max = 3;
  auto server = make_server(options);
  server->register_handler<&TestService::wait_for_gate>(&service);
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    auto other = make_client();
    auto connected = co_await other->connect(own.address());
    REQUIRE_OK(connected);
    std::vector<PendingCall<&TestService::wait_for_gate>> pending;
    for (int i = 0; i < 3; ++i) {
      auto sent = co_await (i % 2 == 0 ? client : *other).send_request<&TestService::wait_for_gate>();
      REQUIRE_OK(sent);
      pending.push_back(std::move(*sent));
    }
    auto begun = co_await eventually(loop(), [&] { return service.waiting == 3; });
    EXPECT_TRUE(begun);
    auto fourth = co_await other->call<&TestService::wait_for_gate>();
    EXPECT_ERROR(fourth, overloaded, "calls_max");
    EXPECT_EQ(own.counters().calls_refused, 1U);
    service.gate = true;
    for (auto& one : pending) {
      auto done = co_await std::move(one);
      EXPECT_EQ(done, 1);
    }
    auto after = co_await other->call<&TestService::wait_for_gate>();
    EXPECT_EQ(after, 1);
  });
}

TEST_P(Conformance, ConnectionsAreBounded) {
  ServerOptions options = server_options();
  options.connections_max = 2;
  serve<echo>(options, {}, [&](Server& own, Client& client) -> Task<void> {
    auto second = make_client();
    auto connected = co_await second->connect(own.address());
    REQUIRE_OK(connected);
    auto third = make_client();
    auto refused = co_await third->connect(own.address());
    EXPECT_ERROR(refused, overloaded, "connections_max (2)");
    EXPECT_EQ(own.counters().connections_refused, 1U);
    auto reply = co_await client.call<echo>("goes on");
    EXPECT_EQ(reply, "goes on");
    second->close();
    auto gone = co_await eventually(loop(), [&] { return own.counters().connections_open == 1; });
    EXPECT_TRUE(gone);
    auto again = co_await third->connect(own.address());
    EXPECT_OK(again);
  });
}

// Both directions, exact to the byte.
TEST_P(Conformance, MessagesAreBounded) {
  constexpr std::size_t limit = 50'000;
  constexpr std::size_t frame_bytes = wire::message_bytes_least;
  for (const bool by_server : {false, true}) {
    ServerOptions server_with = server_options();
    ClientOptions client_with;
    (by_server ? server_with.message_bytes_max : client_with.message_bytes_max) = limit;
    serve<echo, zeros, reflect>(server_with, client_with, [&](Server& own, Client& client) -> Task<void> {
      // The count of a text takes 4 bytes; texts of this size are padded to 8.
      constexpr std::size_t most = (limit - frame_bytes - 4) / 8 * 8;
      auto largest = co_await client.call<echo>(std::string(most, 'x'));
      REQUIRE_OK(largest);
      EXPECT_EQ(largest->size(), most);
      auto request = co_await client.call<echo>(std::string(most + 1, 'x'));
      EXPECT_ERROR(request, limit_exceeded, "message_bytes_max");
      auto reply = co_await client.call<zeros>(std::uint64_t{most});
      EXPECT_OK(reply);
      auto long_reply = co_await client.call<zeros>(std::uint64_t{most + 1});
      EXPECT_ERROR(long_reply, limit_exceeded, "message_bytes_max");
      auto way_too_long = co_await client.call<zeros>(std::uint64_t{300'000});
      EXPECT_ERROR(way_too_long, limit_exceeded, "message_bytes_max");

      // An attachment has no padding, so it can have exactly the rest.
      const std::size_t rest = limit - frame_bytes - 4 - 2;
      const std::string attached(rest + 1, 'a');
      const CallOptions exact_options{.attachment = as_bytes(attached).first(rest)};
      auto exact = co_await client.call<reflect>(exact_options, "xy").reply();
      // The reply has a result of 8 bytes instead of 6, so it is too large.
      EXPECT_ERROR(exact, limit_exceeded, "message_bytes_max");
      const CallOptions back_options{.attachment = as_bytes(attached).first(rest - 2)};
      auto back = co_await client.call<reflect>(back_options, "xy").reply();
      REQUIRE_OK(back);
      EXPECT_EQ(back->attachment().size(), rest - 2);
      const CallOptions one_more_options{.attachment = as_bytes(attached)};
      auto one_more = co_await client.call<reflect>(one_more_options, "xy");
      EXPECT_ERROR(one_more, limit_exceeded, "message of 50001 bytes exceeds message_bytes_max (50000 bytes)");
      EXPECT_EQ(own.counters().protocol_errors, 0U);
      EXPECT_TRUE(client.connected());
    });
  }
}

TEST_P(Conformance, StreamItemsAreBounded) {
  ServerOptions options = server_options();
  options.message_bytes_max = 50'000;
  serve<converse>(options, {}, [&](Server&, Client& client) -> Task<void> {
    auto call = co_await client.open<converse>("hello");
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto writer = call->writer();
    auto greeting = co_await reader.next();
    EXPECT_TRUE(greeting && *greeting == "hello");
    const std::string long_item(60'000, 'x');
    auto refused = co_await writer.write(long_item);
    EXPECT_ERROR(refused, limit_exceeded, "message_bytes_max");
    auto written = co_await writer.write("short");
    EXPECT_OK(written);
    auto answer = co_await reader.next();
    EXPECT_TRUE(answer && *answer == "short?");
    auto result = co_await call->finish();
    EXPECT_EQ(result, 1U);
  });
}

// Requests that the network does not accept wait in memory, up to a limit.
TEST_P(Conformance, TheBacklogIsBounded) {
  serve<echo>(server_options(), {.send_backlog_bytes_max = 1 << 20}, [&](Server&, Client& client) -> Task<void> {
    const std::string text = text_of(8 << 20);
    Scope scope;
    int answered = 0;
    int refused = 0;
    auto one = [&]() -> Task<void> {
      auto reply = co_await client.call<echo>(text);
      if (reply) {
        ++answered;
        co_return;
      }
      EXPECT_ERROR(reply, overloaded, "send_backlog_bytes_max");
      ++refused;
    };
    for (int i = 0; i < 20; ++i) scope.spawn(one());
    co_await scope.join();
    EXPECT_GE(answered, 1);
    EXPECT_GE(refused, 10);
    EXPECT_EQ(answered + refused, 20);
    auto after = co_await client.call<echo>("goes on");
    EXPECT_EQ(after, "goes on");
  });
}

// Replies to a client that does not read wait in the server up to a limit. Beyond it, the server does not read from the
// client either.
TEST_P(Conformance, RepliesInStoreAreBounded) {
  ServerOptions options = server_options();
  options.send_backlog_bytes_max = 1 << 20;
  serve<zeros, echo>(options, {.call_timeout = forever}, [&](Server&, Client& client) -> Task<void> {
    Scope scope;
    int answered = 0;
    auto one = [&]() -> Task<void> {
      auto reply = co_await client.call<zeros>(std::uint64_t{2 << 20});
      EXPECT_OK(reply);
      ++answered;
    };
    for (int i = 0; i < 40; ++i) scope.spawn(one());
    auto other = co_await client.call<echo>("in its turn");
    EXPECT_EQ(other, "in its turn");
    co_await scope.join();
    EXPECT_EQ(answered, 40);
  });
}

// Requests that handlers keep count against receive_bytes_max. Further ones are refused while they are received.
TEST_P(Conformance, LargeRequestsInStoreAreBounded) {
  ServerOptions options = server_options();
  options.message_bytes_max = 5 << 20;
  options.receive_bytes_max = 5 << 20;
  keeps_requests = true;
  serve<echo, length_when_notified>(options, {}, [&](Server& own, Client& client) -> Task<void> {
    const std::string fits = text_of(4 << 20);
    auto good = co_await client.call<echo>(fits);
    EXPECT_TRUE(good == fits) << error_of(good);
    std::vector<PendingCall<length_when_notified>> kept;
    for (int i = 0; i < 4; ++i) {
      auto sent = co_await client.send_request<length_when_notified>(fits);
      REQUIRE_OK(sent);
      kept.push_back(std::move(*sent));
    }
    // One request always fits. Two leave no room for a third.
    auto last = co_await std::move(kept[3]);
    EXPECT_ERROR(last, overloaded, "receive_bytes_max");
    auto third = co_await std::move(kept[2]);
    EXPECT_ERROR(third, overloaded, "receive_bytes_max");
    EXPECT_GE(own.counters().memory_refusals, 2U);
    EXPECT_GE(own.counters().receive_bytes, 4U << 20);
    keeps_requests = false;
    auto first = co_await std::move(kept[0]);
    EXPECT_EQ(first, fits.size());
    static_cast<void>(co_await std::move(kept[1]));
    auto again = co_await client.call<echo>(fits);
    EXPECT_TRUE(again == fits) << error_of(again);
    EXPECT_EQ(own.counters().protocol_errors, 0U);
    auto calm = co_await eventually(loop(), [&] { return own.counters().receive_bytes == 0; });
    EXPECT_TRUE(calm) << own.counters().receive_bytes;
  });
}

TEST_P(Conformance, BoundsOfMemoryMustAgree) {
  const auto refused = [&](auto change) {
    ServerOptions options = server_options();
    change(options);
    const std::unique_ptr<Server> server = make_server(std::move(options));
    return server->start();
  };
  EXPECT_ERROR(refused([](ServerOptions& options) { options.receive_bytes_max = 1 << 20; }), invalid_argument,
               "receive_bytes_max (1048576 bytes) is less than message_bytes_max (67108864 bytes)");
  EXPECT_ERROR(refused([](ServerOptions& options) { options.receive_share_bytes_max = 1 << 20; }), invalid_argument,
               "receive_share_bytes_max (1048576 bytes) is less than message_bytes_max");
  EXPECT_ERROR(refused([](ServerOptions& options) { options.receive_share_bytes_max = std::size_t{2} << 30; }),
               invalid_argument, "is less than receive_share_bytes_max");
}

TEST_P(Conformance, HandshakesAreBounded) {
  ServerOptions options = server_options();
  options.handshakes_max = 2;
  // Real time could pass before the third client comes.
  options.handshake_timeout = backend->real_time() ? forever : Duration(200ms);
  auto server = make_server(options);
  server->register_handler<echo>();
  // A connection that sends no HELLO.
  struct Silent final : transport::StreamSink {
    MutableBytes receive_space() override { return memory; }
    void received(std::size_t) override {}
    void sendable(std::size_t) override {}
    void ended(const Error&) override { closed = true; }
    std::array<std::byte, 256> memory{};
    bool closed = false;
  };
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    std::vector<std::unique_ptr<Silent>> sinks;
    std::vector<std::unique_ptr<transport::Stream>> streams;
    for (int i = 0; i < 2; ++i) {
      auto stream = co_await backend->network()->connect(loop(), own.address(), patience);
      REQUIRE_OK(stream);
      sinks.push_back(std::make_unique<Silent>());
      streams.push_back(std::move(*stream));
      streams.back()->start(loop(), *sinks.back());
    }
    auto here = co_await eventually(loop(), [&] { return own.counters().connections_accepted == 3; });
    EXPECT_TRUE(here);
    auto third = make_client();
    // A well-behaved client is admitted in spite of them: the oldest silent connection is closed.
    auto admitted = co_await third->connect(own.address());
    EXPECT_OK(admitted);
    EXPECT_EQ(own.counters().connections_refused, 1U);
    auto reply = co_await client.call<echo>("goes on");
    EXPECT_EQ(reply, "goes on");
    // The time of silent connections is limited as well.
    auto cut =
        co_await eventually(loop(), [&] { return sinks[0]->closed && (sinks[1]->closed || backend->real_time()); });
    EXPECT_TRUE(cut);
    auto again = co_await third->connect(own.address());
    EXPECT_OK(again);
  });
}

}  // namespace hawser::conformance
