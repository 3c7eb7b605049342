#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/interceptor.h"
#include "hawser/retry.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"

// Streams and whole replies over a ClientPool, in virtual time.
namespace hawser::pool_calls {

using namespace testing_tools;
using transport::over;

// Returns the text, and the attachment of the call as its own.
std::string with_attachment(Context& context, std::string text) {
  context.set_attachment(Buffer::copy_of(std::string(as_text(context.attachment())) + "!"));
  context.add_metadata("peer", context.peer());
  return text;
}
std::string_view long_text(std::uint32_t bytes) {
  static const std::string all = text_of(1 << 20);
  return std::string_view(all).substr(0, bytes);
}
Task<int> count_to(int end, Writer<int> out) {
  for (int i = 0; i < end; ++i) {
    auto written = co_await out.write(i);
    if (!written) co_return -1;
  }
  co_return end;
}
Task<std::string> join(std::string between, Reader<std::string> in) {
  std::string all;
  for (;;) {
    auto item = co_await in.next();
    if (!item || !*item) co_return all;
    all += (all.empty() ? "" : between) + **item;
  }
}
// Sends who the client is, and ends when the call is cancelled.
Task<void> hold(Context& context, Writer<std::string> out) {
  const std::string peer = context.peer();
  auto written = co_await out.write(peer);
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
}
Task<void> wait_for_end(Context& context) { static_cast<void>(co_await context.loop().sleep(1h, context.token())); }
Task<void> unregistered(Writer<int>) { co_return; }

class PoolCalls : public ::testing::Test {
 protected:
  // Runs the coroutine that `body` returns, with a server and a pool of connections to it.
  template <class Body>
  void run(Body body) {
    loop.run([](PoolCalls& self, Body use) -> Task<void> {
      self.start_server("server:0");
      self.pool = ClientPool::create(self.loop, self.server->address(), over(self.network, self.options));
      co_await use();
      self.pool.reset();
      self.server.reset();
    }(*this, std::move(body)));
  }
  void start_server(std::string address) {
    ServerOptions with;
    with.calls_per_connection_max = calls_per_connection_max;
    with.connections_max = connections_max;
    with.transports = options.client.transports;
    with.listen = std::move(address);
    server = std::make_unique<Server>(loop, over(network, std::move(with)));
    server->register_handler<with_attachment, long_text, count_to, join, hold, wait_for_end>();
    EXPECT_OK(server->start());
  }
  // Every connection makes this number of calls fail with `error` before they are sent.
  void refuse_first(int& calls, ErrorCode code) {
    options.client.interceptors.push_back(
        client_interceptor([&calls, code](OutgoingCall&, Next next) -> Task<Result<void>> {
          if (calls-- > 0) co_return fail(code, "refused before it was sent");
          co_return co_await next();
        }));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), LoopOptions{.log = no_log()}};
  const std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(7);
  std::size_t calls_per_connection_max = ServerOptions().calls_per_connection_max;
  std::size_t connections_max = ServerOptions().connections_max;
  PoolOptions options;
  std::unique_ptr<Server> server;
  std::shared_ptr<ClientPool> pool;
};

TEST_F(PoolCalls, TheWholeReply) {
  run([&]() -> Task<void> {
    const std::string attachment = "beside";
    const CallOptions with{.attachment = as_bytes(attachment)};
    std::string text = "text";
    auto call = pool->call<with_attachment>(with, text);
    text = "changed";  // The call has a copy.
    const auto reply = co_await std::move(call).reply();
    REQUIRE_OK(reply);
    EXPECT_EQ(**reply, "text");
    EXPECT_EQ(as_text(reply->attachment()), "beside!");
    EXPECT_TRUE(reply->metadata().find("peer"));
    auto value = co_await pool->call<with_attachment>(with, "value");
    EXPECT_EQ(value, "value");
  });
}

TEST_F(PoolCalls, AReplyIntoMemory) {
  run([&]() -> Task<void> {
    std::vector<std::byte> memory(100'000);
    auto reply = co_await pool->call<long_text>(100'000U).into(memory);
    REQUIRE_OK(reply);
    EXPECT_EQ(static_cast<const void*>((*reply)->data()), memory.data());
    EXPECT_EQ(**reply, long_text(100'000));
    auto larger = co_await pool->call<long_text>(100'001U).into(memory);
    EXPECT_ERROR(larger, limit_exceeded, "larger than the memory given to into()");
  });
}

TEST_F(PoolCalls, StreamsInBothDirections) {
  run([&]() -> Task<void> {
    auto counting = co_await pool->open<count_to>(1000);
    REQUIRE_OK(counting);
    auto numbers = counting->reader();
    for (int i = 0; i < 1000; ++i) {
      auto number = co_await numbers.next();
      REQUIRE_OK(number);
      EXPECT_EQ(*number, i);
    }
    auto counted = co_await counting->finish();
    EXPECT_EQ(counted, 1000);

    const CallOptions within{.timeout = patience};
    std::string between = "-";
    auto opening = pool->open<join>(within, between);
    between = "changed";  // The task has a copy.
    auto joining = co_await std::move(opening);
    REQUIRE_OK(joining);
    auto words = joining->writer();
    for (const std::string word : {"a", "b", "c"}) {
      auto written = co_await words.write(word);
      EXPECT_OK(written);
    }
    auto all = co_await joining->finish();
    EXPECT_EQ(all, "a-b-c");
  });
}

// A stream counts as a call in flight of its connection for as long as it lasts.
TEST_F(PoolCalls, StreamsAreSpreadOverTheConnections) {
  options.connections_max = 3;
  options.calls_per_connection = 1;
  options.idle_timeout = 1s;
  run([&]() -> Task<void> {
    std::vector<StreamingCall<hold>> streams;
    std::vector<std::string> peers;
    for (std::size_t i = 0; i < 6; ++i) {
      auto opened = co_await pool->open<hold>();
      REQUIRE_OK(opened);
      auto reader = opened->reader();
      auto peer = co_await reader.next();
      REQUIRE(peer && *peer);
      peers.push_back(**peer);
      streams.push_back(std::move(*opened));
      // Every second one finds all connections busy: another is opened while one of them serves the call.
      const std::size_t expected = std::min<std::size_t>((i + 1) / 2 + 1, 3);
      auto more = co_await eventually(loop, [&] { return pool->connections() == expected; });
      EXPECT_TRUE(more) << i;
    }
    EXPECT_EQ(pool->connections(), 3U);
    EXPECT_EQ(pool->calls_in_flight(), 6U);
    EXPECT_EQ(std::set<std::string>(peers.begin(), peers.end()).size(), 3U);
    co_await loop.sleep(10s);
    EXPECT_EQ(pool->connections(), 3U) << "the connection of a stream was closed as unused";
    EXPECT_EQ(pool->calls_in_flight(), 6U);
    streams.clear();
    auto idle = co_await eventually(loop, [&] { return pool->connections() == 0; });
    EXPECT_TRUE(idle);
  });
}

TEST_F(PoolCalls, AStreamEndsWithItsConnection) {
  run([&]() -> Task<void> {
    auto opened = co_await pool->open<hold>();
    REQUIRE_OK(opened);
    auto reader = opened->reader();
    auto peer = co_await reader.next();
    REQUIRE(peer && *peer);
    network->reset_all();
    auto item = co_await reader.next();
    EXPECT_FALSE(item);
    auto finished = co_await opened->finish();
    EXPECT_ERROR(finished, outcome_unknown, "");
    // The next one has another connection.
    auto next = co_await pool->open<count_to>(1);
    REQUIRE_OK(next);
    auto counted = co_await next->finish();
    EXPECT_EQ(counted, 1);
  });
}

TEST_F(PoolCalls, AStreamEndsWithThePool) {
  run([&]() -> Task<void> {
    auto opened = co_await pool->open<hold>();
    REQUIRE_OK(opened);
    auto unawaited = pool->open<hold>();
    auto unawaited_call = pool->call<long_text>(1U).reply();
    pool.reset();
    auto finished = co_await opened->finish();
    EXPECT_FALSE(finished);
    const auto late = co_await std::move(unawaited);
    EXPECT_ERROR(late, unavailable, "the pool was destroyed");
    const auto late_reply = co_await std::move(unawaited_call);
    EXPECT_ERROR(late_reply, unavailable, "the pool was destroyed");
  });
}

// Nothing of the call was sent over the first connection.
TEST_F(PoolCalls, WhatWasNotSentIsSentOnceMore) {
  int refusals = 0;
  refuse_first(refusals, ErrorCode::not_sent);
  run([&]() -> Task<void> {
    refusals = 1;
    auto opened = co_await pool->open<count_to>(3);
    REQUIRE_OK(opened);
    auto counted = co_await opened->finish();
    EXPECT_EQ(counted, 3);
    refusals = 2;
    auto twice = co_await pool->open<count_to>(3);
    EXPECT_ERROR(twice, not_sent, "refused before it was sent");
    EXPECT_EQ(refusals, 0);
    std::vector<std::byte> memory(10);
    refusals = 1;
    auto reply = co_await pool->call<long_text>(10U).into(memory);
    REQUIRE_OK(reply);
    EXPECT_EQ(**reply, long_text(10));
    refusals = 2;
    auto refused = co_await pool->call<long_text>(10U).reply();
    EXPECT_ERROR(refused, not_sent, "refused before it was sent");
  });
}

TEST_F(PoolCalls, OtherErrorsAreFinal) {
  int refusals = 0;
  refuse_first(refusals, ErrorCode::overloaded);
  run([&]() -> Task<void> {
    refusals = 5;
    auto opened = co_await pool->open<count_to>(3);
    EXPECT_ERROR(opened, overloaded, "refused before it was sent");
    EXPECT_EQ(refusals, 4);
    auto reply = co_await pool->call<long_text>(10U).reply();
    EXPECT_ERROR(reply, overloaded, "refused before it was sent");
    EXPECT_EQ(refusals, 3);
    refusals = 0;
    auto unknown = co_await pool->open<unregistered>();
    REQUIRE_OK(unknown);
    auto finished = co_await unknown->finish();
    EXPECT_ERROR(finished, unknown_method, "unregistered");
  });
}

TEST_F(PoolCalls, WithoutAServer) {
  options.connect_attempts_max = 2;
  run([&]() -> Task<void> {
    const auto to_nobody = ClientPool::create(loop, "nobody:1", over(network, options));
    auto opened = co_await to_nobody->open<count_to>(3);
    EXPECT_ERROR(opened, unavailable, "after 2 attempts");
    auto reply = co_await to_nobody->call<long_text>(1U).reply();
    EXPECT_ERROR(reply, unavailable, "after 2 attempts");
  });
}

TEST_F(PoolCalls, DeadlinesAndStops) {
  run([&]() -> Task<void> {
    const CallOptions brief{.timeout = 5s};
    const Time start = loop.now();
    auto opened = co_await pool->open<hold>(brief);
    REQUIRE_OK(opened);
    auto finished = co_await opened->finish();
    EXPECT_ERROR(finished, deadline_exceeded, "");
    auto reply = co_await pool->call<wait_for_end>(brief).reply();
    EXPECT_ERROR(reply, deadline_exceeded, "");
    EXPECT_GE(loop.now() - start, 10s);

    std::stop_source stop;
    const CallOptions stoppable{.timeout = forever, .token = stop.get_token()};
    auto stopped = co_await pool->open<hold>(stoppable);
    REQUIRE_OK(stopped);
    auto call = pool->call<wait_for_end>(stoppable).reply();
    stop.request_stop();
    auto ended = co_await stopped->finish();
    EXPECT_ERROR(ended, cancelled, "");
    const auto none = co_await std::move(call);
    EXPECT_ERROR(none, cancelled, "");
  });
}

// Accepts connections and never answers a HELLO.
struct SilentServer final : transport::AcceptSink {
  void accepted(std::unique_ptr<transport::Stream> stream) override { streams.push_back(std::move(stream)); }
  std::vector<std::unique_ptr<transport::Stream>> streams;
};

TEST_F(PoolCalls, TheDeadlineEndsTheWaitForAConnection) {
  run([&]() -> Task<void> {
    SilentServer silent;
    const auto listener = network->listen(loop, "silent:0", silent);
    REQUIRE_OK(listener);
    const auto to_silent = ClientPool::create(loop, (*listener)->address(), over(network, options));
    const Time start = loop.now();
    const CallOptions brief{.timeout = 100ms};
    auto value = co_await to_silent->call<wait_for_end>(brief);
    EXPECT_ERROR(value, deadline_exceeded, "no connection");
    auto reply = co_await to_silent->call<long_text>(brief, 1U).reply();
    EXPECT_ERROR(reply, deadline_exceeded, "no connection");
    auto opened = co_await to_silent->open<hold>(brief);
    EXPECT_ERROR(opened, deadline_exceeded, "no connection");
    Retrying retrying(*to_silent);
    auto retried = co_await retrying.call<wait_for_end>(brief);
    EXPECT_ERROR(retried, deadline_exceeded, "no connection");
    EXPECT_LT(loop.now() - start, options.client.connect_timeout) << "the calls waited for the attempt to connect";
  });
}

TEST_F(PoolCalls, TheClientsTimeoutEndsTheWaitForAConnection) {
  options.client.call_timeout = 1s;
  run([&]() -> Task<void> {
    SilentServer silent;
    const auto listener = network->listen(loop, "silent:0", silent);
    REQUIRE_OK(listener);
    const auto to_silent = ClientPool::create(loop, (*listener)->address(), over(network, options));
    auto value = co_await to_silent->call<wait_for_end>();
    EXPECT_ERROR(value, deadline_exceeded, "no connection");
    // A call with a stream has no deadline by default.
    auto opened = co_await to_silent->open<hold>();
    EXPECT_ERROR(opened, unavailable, "after 3 attempts");
  });
}

TEST_F(PoolCalls, AStopEndsTheWaitForAConnection) {
  run([&]() -> Task<void> {
    SilentServer silent;
    const auto listener = network->listen(loop, "silent:0", silent);
    REQUIRE_OK(listener);
    const auto to_silent = ClientPool::create(loop, (*listener)->address(), over(network, options));
    std::stop_source stop;
    const CallOptions stoppable{.timeout = forever, .token = stop.get_token()};
    const Time start = loop.now();
    loop.post([&stop] { stop.request_stop(); });
    auto value = co_await to_silent->call<wait_for_end>(stoppable);
    EXPECT_ERROR(value, cancelled, "");
    auto opened = co_await to_silent->open<hold>(stoppable);
    EXPECT_ERROR(opened, cancelled, "");
    EXPECT_LT(loop.now() - start, options.client.connect_timeout) << "the calls waited for the attempt to connect";
  });
}

TEST_F(PoolCalls, BothAttemptsShareTheTimeout) {
  bool first = true;
  options.client.interceptors.push_back(
      client_interceptor([this, &first](OutgoingCall&, Next next) -> Task<Result<void>> {
        if (std::exchange(first, false)) {
          co_await loop.sleep(6s);
          co_return fail(ErrorCode::not_sent, "refused before it was sent");
        }
        co_return co_await next();
      }));
  run([&]() -> Task<void> {
    const Time start = loop.now();
    auto value = co_await pool->call<wait_for_end>(CallOptions{.timeout = 10s});
    EXPECT_ERROR(value, deadline_exceeded, "");
    EXPECT_FALSE(first);
    EXPECT_LT(loop.now() - start, 11s) << "the second attempt had the whole timeout";
  });
}

// The server allows fewer calls on a connection than the pool.
TEST_F(PoolCalls, AFullConnectionTakesNoCalls) {
  calls_per_connection_max = 2;
  options.connections_max = 3;
  run([&]() -> Task<void> {
    std::vector<StreamingCall<hold>> streams;
    for (std::size_t i = 0; i < 6; ++i) {
      auto opened = co_await pool->open<hold>();
      REQUIRE_OK(opened);
      streams.push_back(std::move(*opened));
    }
    EXPECT_EQ(pool->connections(), 3U);
    EXPECT_EQ(pool->calls_in_flight(), 6U);
    auto late = co_await pool->call<long_text>(CallOptions{.timeout = 5s}, 1U);
    EXPECT_ERROR(late, deadline_exceeded, "no connection");
    // The call waits until a stream has ended.
    loop.post([&streams] { streams.pop_back(); });
    auto value = co_await pool->call<long_text>(1U);
    EXPECT_EQ(value, long_text(1));
    EXPECT_EQ(pool->connections(), 3U);
    streams.clear();
  });
}

// Calls beyond the only place, in the order in which they came.
class WaitingCalls : public PoolCalls {
 protected:
  WaitingCalls() {
    calls_per_connection_max = 1;
    options.connections_max = 1;
  }
  // Calls with a number each, while a stream holds the place. `waits` runs when all of them wait.
  template <class Body>
  void run_waiting(std::uint32_t count, Body waits) {
    run([&]() -> Task<void> {
      auto opened = co_await pool->open<hold>();
      REQUIRE_OK(opened);
      std::optional<StreamingCall<hold>> holder = std::move(*opened);
      Scope scope;
      for (std::uint32_t i = 1; i <= count; ++i) scope.spawn(call(i));
      co_await loop.sleep(1ms);
      waits(holder);
      co_await scope.join();
    });
  }
  Task<void> call(std::uint32_t number) {
    const CallOptions with{.timeout = 10s, .token = number == 1 ? first.get_token() : std::stop_token()};
    auto value = co_await pool->call<long_text>(with, number);
    if (value) {
      EXPECT_EQ(*value, long_text(number));
      served.push_back(number);
    } else {
      errors.push_back(value.error());
    }
  }
  Task<void> call_again() {
    for (std::uint32_t i = 1; i <= 3; ++i) {
      while (served.size() < i) co_await loop.sleep(1us);
      co_await call(100 + i);
    }
  }

  std::stop_source first;  // Stops the call 1.
  std::vector<std::uint32_t> served;
  std::vector<Error> errors;
};

TEST_F(WaitingCalls, AreServedInTheirOrder) {
  run_waiting(5, [&](auto& holder) { holder.reset(); });
  EXPECT_EQ(served, (std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
}

TEST_F(WaitingCalls, AreNotOvertakenByLaterOnes) {
  Scope late;
  run_waiting(3, [&](auto& holder) {
    holder.reset();
    // As many again, each when another one was served.
    late.spawn(call_again());
  });
  ASSERT_GE(served.size(), 3U);
  EXPECT_EQ((std::vector<std::uint32_t>(served.begin(), served.begin() + 3)), (std::vector<std::uint32_t>{1, 2, 3}));
}

// The first one is resumed for the place, and ends instead.
TEST_F(WaitingCalls, PassTheirTurnOn) {
  run_waiting(3, [&](auto& holder) {
    first.request_stop();
    holder.reset();
  });
  EXPECT_EQ(served, (std::vector<std::uint32_t>{2, 3}));
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors.front().code, ErrorCode::cancelled);
}

TEST_F(WaitingCalls, AreBoundedInNumber) {
  options.calls_waiting_max = 3;
  run_waiting(5, [&](auto& holder) { holder.reset(); });
  EXPECT_EQ(served, (std::vector<std::uint32_t>{1, 2, 3}));
  ASSERT_EQ(errors.size(), 2U);
  for (const Error& error : errors) {
    EXPECT_EQ(error.code, ErrorCode::overloaded);
    EXPECT_TRUE(error.text.contains(" has 3 calls already (PoolOptions::calls_waiting_max is 3)")) << error.text;
  }
}

TEST_F(WaitingCalls, WaitForABoundedTime) {
  options.wait_max = 2s;
  run([&]() -> Task<void> {
    auto opened = co_await pool->open<hold>();
    REQUIRE_OK(opened);
    const Time start = loop.now();
    auto sent = co_await pool->send_request([](Client& client) { return client.send_request<long_text>(1U); });
    EXPECT_ERROR(sent, overloaded, "2000 ms (PoolOptions::wait_max); 1 of 1 connection (connections_max) open");
    auto streams = co_await pool->open<hold>();
    EXPECT_ERROR(streams, overloaded, "PoolOptions::wait_max");
    EXPECT_LT(loop.now() - start, 5s);
    auto value = co_await pool->call<long_text>(CallOptions{.timeout = 1s}, 1U);
    EXPECT_ERROR(value, deadline_exceeded, "no connection");
  });
}

TEST_F(PoolCalls, AWaitingCallGetsTheConnectionThatReplacesALostOne) {
  calls_per_connection_max = 1;
  options.connections_max = 1;
  run([&]() -> Task<void> {
    auto opened = co_await pool->open<hold>();
    REQUIRE_OK(opened);
    loop.post([this] { network->reset_all(); });
    auto value = co_await pool->call<long_text>(1U);
    EXPECT_EQ(value, long_text(1));
    auto finished = co_await opened->finish();
    EXPECT_ERROR(finished, outcome_unknown, "");
  });
}

// Calls beyond the places of the connections, which are sent some time after the pool has chosen a connection.
class CrowdedCalls : public PoolCalls {
 protected:
  CrowdedCalls() {
    calls_per_connection_max = 2;
    options.connections_max = 1;
  }
  Task<void> call(std::uint32_t number) {
    auto value = co_await pool->call<long_text>(CallOptions{.idempotent = true}, number);
    EXPECT_EQ(value, long_text(number)) << testing_tools::error_of(value);
  }
  void run_many(Duration until, std::function<void()> then = [] {}) {
    run([&]() -> Task<void> {
      Scope scope;
      for (std::uint32_t i = 0; i < 100; ++i) scope.spawn(call(i));
      co_await loop.sleep(until);
      then();
      co_await scope.join();
    });
  }
};

TEST_F(CrowdedCalls, WaitAlsoForInterceptors) {
  options.client.interceptors.push_back(client_interceptor([this](OutgoingCall&, Next next) -> Task<Result<void>> {
    co_await loop.sleep(10us);
    auto outcome = co_await next();
    co_await loop.sleep(10us);
    co_return outcome;
  }));
  run_many(1ms);
}

// The transport accepts thousands of calls that wait for it, and the server would refuse most of them.
TEST_F(CrowdedCalls, WaitWhileTheConnectionMoves) {
  network->set_options({.make_transport = &transport::make_sim_transport});
  options.client.transports = {.order = {"simpath"}};
  int moves = 0;
  run_many(5ms, [&] {
    EXPECT_EQ(pool->connections(), 1U);
    network->reset_transports();
    ++moves;
  });
  EXPECT_EQ(moves, 1);
}

TEST_F(CrowdedCalls, WaitIfTheServerAcceptsFewerConnections) {
  connections_max = 1;
  options.connections_max = 4;
  options.client.interceptors.push_back(client_interceptor([this](OutgoingCall&, Next next) -> Task<Result<void>> {
    co_await loop.sleep(100ms);
    co_return co_await next();
  }));
  run_many(1ms);
}

TEST_F(PoolCalls, AWaitWithoutAnyConnectionEndsWithUnavailable) {
  options.wait_max = 2s;
  run([&]() -> Task<void> {
    SilentServer silent;
    const auto listener = network->listen(loop, "silent:0", silent);
    REQUIRE_OK(listener);
    const auto to_silent = ClientPool::create(loop, (*listener)->address(), over(network, options));
    auto sent = co_await to_silent->send_request([](Client& client) { return client.send_request<long_text>(1U); });
    EXPECT_ERROR(sent, unavailable, "within 2000 ms (PoolOptions::wait_max)");
  });
}

TEST_F(PoolCalls, WithoutAttemptsACallWaitsForTheFirst) {
  options.connect_attempts_max = 0;
  run([&]() -> Task<void> {
    auto value = co_await pool->call<long_text>(1U);
    EXPECT_EQ(value, long_text(1));
  });
}

}  // namespace hawser::pool_calls
