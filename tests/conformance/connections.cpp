#include <atomic>
#include <thread>

#include "rpc/server/inspector.h"
#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"
#include "transport/network_access.h"

// Connecting, stopping, and client pools.
namespace hawser::conformance {

TEST_P(Conformance, ConcurrentConnectsAgree) {
  auto server = make_server();
  server->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto client = make_client();
    auto dead = make_client();
    Scope scope;
    int connected = 0;
    int refused = 0;
    for (int i = 0; i < 20; ++i) {
      scope.spawn([](Client& one, std::string to, int& count) -> Task<void> {
        auto outcome = co_await one.connect(to);
        EXPECT_OK(outcome);
        count += outcome.has_value();
      }(*client, server->address(), connected));
      scope.spawn([](Client& one, std::string to, int& count) -> Task<void> {
        auto outcome = co_await one.connect(to);
        EXPECT_ERROR(outcome, unavailable, "");
        count += !outcome;
        // A waiter that tries again at once does not change the outcome for the others.
        if (count == 1) {
          auto again = co_await one.connect(to);
          EXPECT_FALSE(again);
        } else {
          EXPECT_LE(count, 20);
        }
      }(*dead, backend->dead_address(), refused));
    }
    co_await scope.join();
    EXPECT_EQ(connected, 20);
    EXPECT_EQ(refused, 20);
    EXPECT_EQ(server->counters().connections_accepted, 1U);
    auto again = co_await client->connect(server->address());
    EXPECT_OK(again);
    EXPECT_EQ(server->counters().connections_accepted, 1U);
    auto elsewhere = co_await client->connect(backend->dead_address());
    EXPECT_ERROR(elsewhere, invalid_argument, "close() it first");
  });
}

// Pages show the credits and queues of a connection.
TEST_P(Conformance, ConnectionsReportTheirCredits) {
  auto server = make_server();
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server& serving, Client& client) -> Task<void> {
    auto reply = co_await client.call<echo>(std::string_view("hi"));
    REQUIRE_OK(reply);
    const rpc::Inspector::Connections found = co_await rpc::Inspector::connections(serving, loop(), {}, 10);
    REQUIRE(found.rows.size() == 1);
    const std::string transport(client.transport());
    const std::string& details = found.rows[0].details;
    EXPECT_EQ(found.rows[0].transport, transport);
    const std::string expected = transport == "shm"    ? " bytes of the ring to the peer used, "
                                 : transport == "rdma" ? " credits left; the peer has "
                                 : transport == "ucx"  ? " bytes of the peer's window used; "
                                                       : "";
    EXPECT_NE(details.find(expected), std::string::npos) << transport << ": " << details;
    EXPECT_EQ(details.empty(), expected.empty()) << transport << ": " << details;
  });
}

// All that waited for an attempt receive its outcome, also when one of them has already begun another attempt.
TEST_P(Conformance, EveryWaiterIsToldOfItsAttempt) {
  auto server = make_server();
  server->register_handler<echo>();
  run([&]() -> Task<void> {
    auto client = make_client();
    const std::string dead = backend->dead_address();
    std::vector<std::string> order;
    Scope scope;
    auto retrying = [&]() -> Task<void> {
      auto outcome = co_await client->connect(dead);
      EXPECT_FALSE(outcome);
      auto second = co_await client->connect(dead);
      order.push_back("second");
    };
    auto once = [&]() -> Task<void> {
      auto outcome = co_await client->connect(dead);
      EXPECT_FALSE(outcome);
      order.push_back("first");
    };
    for (int i = 0; i < 3; ++i) {
      scope.spawn(once());
      scope.spawn(retrying());
    }
    co_await scope.join();
    EXPECT_EQ(order, (std::vector<std::string>{"first", "first", "first", "second", "second", "second"}));
  });
}

TEST_P(Conformance, FailuresToConnectSayWhy) {
  run([&]() -> Task<void> {
    auto client = make_client();
    auto early = co_await client->call<echo>("too early");
    EXPECT_ERROR(early, not_sent, "connect(address) first");
    auto pinged = co_await client->ping();
    EXPECT_ERROR(pinged, not_sent, "connect(address) first");
    auto refused = co_await client->connect(backend->dead_address());
    EXPECT_ERROR(refused, unavailable, "refused");
    EXPECT_FALSE(client->connected());
    auto called = co_await client->call<echo>("hello");
    EXPECT_FALSE(called);
    if (!backend->real_time()) co_return;
    for (const std::string bad :
         {"", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:99999", "::1:80"}) {
      auto other = make_client();
      auto outcome = co_await other->connect(bad);
      EXPECT_ERROR(outcome, invalid_argument, "") << bad;
    }
    auto unknown = co_await client->connect("no-such-host.invalid:80");
    EXPECT_ERROR(unknown, unavailable, "cannot resolve 'no-such-host.invalid'");
  });
}

TEST_P(Conformance, ListeningTwiceFails) {
  run([&]() -> Task<void> {
    auto one = make_server();
    REQUIRE_OK(one->start());
    ServerOptions options = server_options();
    options.listen = one->address();
    auto two = make_server(options);
    const Result<void> started = two->start();
    EXPECT_ERROR(started, unavailable, one->address());
    const Result<void> again = one->start();
    EXPECT_ERROR(again, invalid_argument, "started before");
    co_return;
  });
}

// A function of the same name with other types, and a function that the server does not have.
namespace elsewhere {
inline std::string missing(std::string text) { return text; }
}  // namespace elsewhere
inline std::uint32_t echo_of_numbers(std::uint32_t number) { return number; }

}  // namespace hawser::conformance

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::conformance::echo_of_numbers> =
    hawser::method_name<&hawser::conformance::echo>;

namespace hawser::conformance {

TEST_P(Conformance, MethodsMustAgree) {
  serve<echo>([](Server& server, Client& client) -> Task<void> {
    auto missing = co_await client.call<elsewhere::missing>("x");
    EXPECT_ERROR(missing, unknown_method, "hawser::conformance::elsewhere::missing");
    if (!missing) {
      EXPECT_TRUE(missing.error().not_executed());
    }
    auto other = co_await client.call<echo_of_numbers>(1U);
    EXPECT_ERROR(other, signature_mismatch, "hawser::conformance::echo");
    EXPECT_EQ(server.counters().calls_refused, 2U);
    auto after = co_await client.call<echo>("goes on");
    EXPECT_EQ(after, "goes on");
  });
}

TEST_P(Conformance, PingsAndClosing) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_stop>(&service);
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    auto round_trip = co_await client.ping();
    REQUIRE_OK(round_trip);
    EXPECT_GE(*round_trip, 0s);
    auto pending = co_await client.send_request<&TestService::wait_for_stop>();
    REQUIRE_OK(pending);
    auto begun = co_await eventually(loop(), [&] { return service.waiting == 1; });
    EXPECT_TRUE(begun);
    client.close();
    EXPECT_FALSE(client.connected());
    auto ended = co_await std::move(*pending);
    EXPECT_ERROR(ended, outcome_unknown, "the client was closed");
    auto late = co_await client.call<echo>("late");
    EXPECT_ERROR(late, not_sent, "the client was closed");
    auto gone =
        co_await eventually(loop(), [&] { return service.stopped == 1 && own.counters().connections_open == 0; });
    EXPECT_TRUE(gone);
    auto again = co_await client.connect(own.address());
    REQUIRE_OK(again);
    auto reply = co_await client.call<echo>("again");
    EXPECT_EQ(reply, "again");
  });
}

TEST_P(Conformance, StopsGracefully) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_gate>(&service);
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    auto pending = co_await client.send_request<&TestService::wait_for_gate>();
    REQUIRE_OK(pending);
    auto begun = co_await eventually(loop(), [&] { return service.waiting == 1; });
    EXPECT_TRUE(begun);
    Scope scope;
    bool stopped = false;
    auto stopping = [&]() -> Task<void> {
      co_await own.shut_down(20s);
      stopped = true;
    };
    scope.spawn(stopping());
    auto notified = co_await eventually(loop(), [&] { return client.going_away(); });
    EXPECT_TRUE(notified);
    auto refused = co_await client.call<echo>("late");
    EXPECT_ERROR(refused, unavailable, "stopping");
    auto other = make_client();
    auto connected = co_await other->connect(own.address());
    EXPECT_FALSE(connected);
    EXPECT_FALSE(stopped);
    service.gate = true;
    auto finished = co_await std::move(*pending);
    EXPECT_EQ(finished, 1);
    co_await scope.join();
    auto lost = co_await eventually(loop(), [&] { return !client.connected(); });
    EXPECT_TRUE(lost);
    auto late = co_await client.call<echo>("later");
    EXPECT_ERROR(late, not_sent, "not connected any more");
  });
}

TEST_P(Conformance, StopsCallsThatPassTheGrace) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_stop, &TestService::wait_for_gate>(&service);
  run_connected(*server, {}, [&](Server& own, Client& client) -> Task<void> {
    auto polite = co_await client.send_request<&TestService::wait_for_stop>();
    auto deaf = co_await client.send_request<&TestService::wait_for_gate>();
    REQUIRE(polite && deaf);
    auto begun = co_await eventually(loop(), [&] { return service.waiting == 2; });
    EXPECT_TRUE(begun);
    co_await own.shut_down(50ms);
    EXPECT_EQ(service.stopped, 1);
    auto answered = co_await std::move(*polite);
    EXPECT_EQ(answered, 0);  // The client received GOAWAY and answered in time.
    auto ended = co_await std::move(*deaf);
    EXPECT_ERROR(ended, outcome_unknown, "may have been executed");
    EXPECT_EQ(own.counters().calls_in_flight, 0U);
  });
}

// While a server stops under load, the outcome of each call is known: it was answered, or not executed.
TEST_P(Conformance, StoppingUnderLoadLosesNothing) {
  std::uint64_t answered = 0;
  for (int round = 0; round < 10; ++round) {
    auto server = make_server();
    server->register_handler<echo, slow_echo>();
    run([&]() -> Task<void> {
      REQUIRE_OK(server->start());
      std::vector<std::unique_ptr<Client>> clients;
      Scope scope;
      auto work = [&](Client& client, bool slow) -> Task<void> {
        for (;;) {
          Result<std::string> reply;
          if (slow) {
            auto outcome = co_await client.call<slow_echo>("x", 1U);
            reply = std::move(outcome);
          } else {
            auto outcome = co_await client.call<echo>("x");
            reply = std::move(outcome);
          }
          if (!reply) {
            EXPECT_TRUE(reply.error().not_executed()) << error_of(reply);
            co_return;
          }
          ++answered;
        }
      };
      for (int i = 0; i < 4; ++i) {
        clients.push_back(make_client());
        auto connected = co_await clients.back()->connect(server->address());
        REQUIRE_OK(connected);
        for (int j = 0; j < 8; ++j) scope.spawn(work(*clients.back(), j % 2 == 0));
      }
      co_await loop().sleep(std::chrono::microseconds(3'000 + 137 * round));
      co_await server->shut_down(20s);
      co_await scope.join();
    });
  }
  EXPECT_GT(answered, 0U);
}

TEST_P(Conformance, SeveralLoopsServeManyClients) {
  if (!backend->real_time()) GTEST_SKIP() << "a simulation has one thread";
  ServerOptions options = server_options();
  options.threads = 2;
  auto server = make_threaded_server(options);
  server->register_handler<echo, slow_echo>();
  ASSERT_TRUE(server->start());
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  // Created and destroyed on this thread: ThreadSanitizer does not see that a ring's memory is unmapped before it is
  // reused.
  std::vector<std::unique_ptr<Loop>> loops;
  for (int t = 0; t < 3; ++t) loops.push_back(backend->make_loop());
  for (const std::unique_ptr<Loop>& own : loops) {
    threads.emplace_back([&] {
      own->run([](Loop& on, std::shared_ptr<transport::Network> network, std::string to,
                  std::atomic<int>& count) -> Task<void> {
        std::vector<std::unique_ptr<Client>> clients;
        Scope scope;
        for (int i = 0; i < 10; ++i) {
          clients.push_back(std::make_unique<Client>(on, over(network, patient())));
          auto connected = co_await clients.back()->connect(to);
          REQUIRE_OK(connected);
          scope.spawn([](Client& client, std::atomic<int>& counted) -> Task<void> {
            for (std::uint32_t call = 0; call < 50; ++call) {
              const std::string text = text_of(call * 500);
              auto reply = co_await client.call<slow_echo>(text, call % 2);
              counted += reply == text;
            }
          }(*clients.back(), count));
        }
        co_await scope.join();
      }(*own, backend->network(), server->address(), good));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good.load(), 3 * 10 * 50);
  loops.clear();  // The last connections end with the loops. They would not answer the GOAWAY of a server that stops.
  EXPECT_EQ(server->counters().connections_accepted, 30U);
  server->stop(10s);
  EXPECT_EQ(server->counters().connections_open, 0U);
}

}  // namespace hawser::conformance
