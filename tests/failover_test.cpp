#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/interceptor.h"
#include "tests/at_rest.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"

// Selection of a connection's transport, and the fate of its calls when the transport breaks.
namespace hawser::failover {

using namespace testing_tools;

inline std::string_view echo(std::string_view text) { return text; }

std::map<std::string, int> executed;

inline Task<std::string> slowly(Context& context, std::string text) {
  ++executed[text];
  co_await context.loop().sleep(2ms);
  co_return text;
}

class FailoverTest : public ::testing::Test {
 protected:
  void build(transport::SimOptions sim = {}, std::uint64_t seed = 11) {
    executed.clear();
    sim.make_transport = &transport::make_sim_transport;
    sim_ = sim;
    network_ = std::make_shared<transport::SimNetwork>(seed, sim);
    LoopOptions options;
    options.log = [this](LogLevel, std::string_view, std::string_view text) { logged_.emplace_back(text); };
    loop_ = std::make_unique<Loop>(std::make_unique<exec::SimPoller>(), options);
  }
  static TransportOptions simulated() { return {.order = {"simpath"}}; }
  static TransportOptions requiring() { return {.order = {"simpath"}, .required = "simpath"}; }

  // Runs body(server, client) with a client that is not connected yet.
  template <class Body>
  void run(TransportOptions server_has, TransportOptions client_has, Body body) {
    ServerOptions server_options;
    server_options.listen = "server:0";
    server_options.transports = std::move(server_has);
    Server server(*loop_, over(network_, server_options));
    server.register_handler<echo, slowly>();
    ClientOptions client_options;
    client_options.ping_interval = 200ms;
    client_options.transports = std::move(client_has);
    Client client(*loop_, over(network_, client_options));
    auto task = [&]() -> Task<void> {
      REQUIRE_OK(server.start());
      co_await body(server, client);
      client.close();
      co_await server.shut_down(1s);
      co_await reach_rest(*loop_, server);
    };
    run_to_end(task());
  }

  Loop& loop() { return *loop_; }
  transport::SimNetwork& network() { return *network_; }
  const std::shared_ptr<transport::SimNetwork>& network_of_test() { return network_; }
  void set(transport::SimOptions options) {
    options.make_transport = &transport::make_sim_transport;
    network_->set_options(options);
  }
  // Breaks the client's transport in a slow network, so that the failover takes a while. Returns true once it has
  // begun.
  Task<bool> begins_to_move(Client& client) {
    set({.delay_min = 5ms, .delay_max = 6ms});
    network().reset_transports();
    auto moving = co_await eventually(loop(), [&] { return client.transport().empty(); });
    co_return moving;
  }
  bool was_logged(std::string_view text) const {
    return std::any_of(logged_.begin(), logged_.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  std::string reason_of(const Client& client) const {
    for (const TransportFallback& one : client.fallback_reasons()) {
      if (one.transport == "simpath") return one.reason;
    }
    return {};
  }

 private:
  void run_to_end(Task<void> task) { loop_->run(std::move(task)); }

  transport::SimOptions sim_;
  std::shared_ptr<transport::SimNetwork> network_;
  std::unique_ptr<Loop> loop_;
  std::vector<std::string> logged_;
};

TEST_F(FailoverTest, WhatBothHaveIsTaken) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "simpath");
    EXPECT_TRUE(client.fallback_reasons().empty());
    auto reply = co_await client.call<echo>("over the path");
    REQUIRE_OK(reply);
    EXPECT_EQ(*reply, "over the path");
    EXPECT_EQ(server.counters().transports_declined, 0U);
  });
}

TEST_F(FailoverTest, WithoutItOnOneSideTheStreamCarriesAndTheReasonIsTold) {
  build();
  run({.order = {}}, simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_EQ(reason_of(client), "the server has not enabled it");
    EXPECT_TRUE(was_logged("simpath does not carry the connection"));
    EXPECT_EQ(server.counters().transports_declined, 1U);
  });
  build();
  run(simulated(), {.order = {}}, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_TRUE(client.fallback_reasons().empty()) << "a client is not told of what it does not have";
  });
}

TEST_F(FailoverTest, WhenItCannotBeHadTheStreamCarries) {
  build({.transport_declined = 1});
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_EQ(reason_of(client), "the simulation declines");
  });
  build({.transport_absent = 1});
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_EQ(reason_of(client), "the simulation has none here");
    EXPECT_TRUE(was_logged("simpath can't be used: the simulation has none here"));
  });
}

// Either side may fail to make its pending connection. Each attempt ends in one of three states, and calls work in
// each.
TEST_F(FailoverTest, PendingConnectionsFailOnEitherSide) {
  int over_transport = 0;
  int declined_by_server = 0;
  int declined_by_client = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    build({.transport_declined = 0.5}, seed);
    run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
      auto connected = co_await client.connect(server.address());
      REQUIRE_OK(connected);
      auto reply = co_await client.call<echo>("x");
      EXPECT_OK(reply);
      if (client.transport() == "simpath") ++over_transport;
      if (reason_of(client) == "the simulation declines") ++declined_by_server;
      if (reason_of(client) == "the simulation does not accept") ++declined_by_client;
    });
  }
  EXPECT_GT(over_transport, 0);
  EXPECT_GT(declined_by_server, 0);
  EXPECT_GT(declined_by_client, 0);
  EXPECT_EQ(over_transport + declined_by_server + declined_by_client, 40);
}

TEST_F(FailoverTest, WhatIsRequiredIsHadOrAnErrorThatSaysWhy) {
  build({.transport_declined = 1});
  run(simulated(), requiring(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    EXPECT_ERROR(connected, unavailable,
                 "TransportOptions::required is simpath, which cannot be used: the simulation declines");
    EXPECT_FALSE(client.connected());
  });
  build();
  run(simulated(), {.order = {"simpath"}, .required = "stream"}, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "sim");
  });
  build();
  run(simulated(), {.required = "simpath"}, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    EXPECT_ERROR(connected, unavailable, "required is simpath, which cannot be used: it is not enabled");
  });
}

TEST_F(FailoverTest, ATransportThatCarriesNothingIsFoundOutBeforeItIsUsed) {
  build({.transport_vanish = 1, .fault_bytes_max = 0, .fault_after_max = 1us});
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_EQ(reason_of(client), "it broke: a first ping over it was not answered");
    auto reply = co_await client.call<echo>("x");
    EXPECT_OK(reply);
  });
}

// Every call is counted: unsent calls use the byte stream, and calls that were sent are repeated only if they may be.
TEST_F(FailoverTest, WhenItBreaksUnderLoadTheConnectionMoves) {
  int moved = 0;
  int unknown = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    build({}, seed);
    run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
      auto connected = co_await client.connect(server.address());
      REQUIRE_OK(connected);
      REQUIRE(client.transport() == "simpath");
      constexpr int calls = 200;
      int answered = 0;
      int outcome_unknown = 0;
      int ended = 0;
      Scope scope;
      auto one = [&](int number) -> Task<void> {
        const std::string text = (number % 2 == 0 ? "again " : "once ") + std::to_string(number);
        co_await loop().sleep(std::chrono::microseconds(50 * number));
        const CallOptions reply_options{.idempotent = number % 2 == 0};
        auto reply = co_await client.call<slowly>(reply_options, text);
        ++ended;
        if (reply) {
          EXPECT_EQ(*reply, text);
          ++answered;
          EXPECT_GE(executed[text], 1);
        } else {
          EXPECT_EQ(reply.error().code, ErrorCode::outcome_unknown) << reply.error().describe();
          EXPECT_NE(number % 2, 0) << "idempotent calls are sent again";
          ++outcome_unknown;
        }
        if (number % 2 != 0) {
          EXPECT_LE(executed[text], 1) << "sent twice";
        }
      };
      for (int i = 0; i < calls; ++i) scope.spawn(one(i));
      co_await loop().sleep(5ms);
      network().reset_transports();
      co_await scope.join();
      EXPECT_EQ(ended, calls);
      EXPECT_EQ(answered + outcome_unknown, calls);
      EXPECT_TRUE(client.connected());
      EXPECT_EQ(client.transport(), "sim");
      EXPECT_TRUE(was_logged("simpath broke, the connection to server:20000 is made anew"));
      moved += answered;
      unknown += outcome_unknown;
    });
  }
  EXPECT_GT(moved, 0);
  EXPECT_GT(unknown, 0);
}

TEST_F(FailoverTest, CallsThatBeginWhileItMovesWaitAndAreBounded) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    set({.delay_min = 5ms, .delay_max = 6ms});  // So that the failover takes a while.
    network().reset_transports();
    auto broken = co_await eventually(loop(), [&] { return client.transport().empty(); });
    REQUIRE(broken);
    EXPECT_TRUE(client.connected());
    auto pending = co_await client.send_request<echo>("its arguments may not last");
    EXPECT_ERROR(pending, not_sent, "moving to another transport");
    const CallOptions late_options{.timeout = 0ms};
    auto late = co_await client.call<echo>(late_options, "too late");
    EXPECT_ERROR(late, deadline_exceeded, "");
    auto again = co_await client.connect(server.address());
    EXPECT_OK(again);
    EXPECT_EQ(client.transport(), "sim");
    network().reset_transports();
    auto reply = co_await client.call<echo>("in time");
    EXPECT_OK(reply);
  });
}

TEST_F(FailoverTest, ItGoesBackAfterAPauseThatGrows) {
  build();
  TransportOptions options = simulated();
  options.retry_min = 100ms;
  options.retry_max = 1s;
  run(simulated(), options, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    Duration last{};
    for (int round = 0; round < 3; ++round) {
      network().reset_transports();
      auto moved = co_await eventually(loop(), [&] { return client.transport() == "sim"; });
      REQUIRE(moved);
      const Time since = loop().now();
      auto back = co_await eventually(loop(), [&] { return client.transport() == "simpath"; });
      REQUIRE(back);
      EXPECT_GT(loop().now() - since, last + last / 2);
      last = loop().now() - since;
      auto reply = co_await client.call<echo>("x");
      EXPECT_OK(reply);
    }
    EXPECT_GE(last, 300ms);
    auto closed = co_await eventually(loop(), [&] { return server.counters().connections_open == 1; });
    EXPECT_TRUE(closed) << "the connections that were left behind are closed";
  });
}

TEST_F(FailoverTest, ItGoesBackThoughTheFirstAttemptsAreInVain) {
  build();
  TransportOptions options = simulated();
  options.retry_min = 100ms;
  options.retry_max = 60s;
  run(simulated(), options, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    set({.transport_declined = 1});
    network().reset_transports();
    auto moved = co_await eventually(loop(), [&] { return client.transport() == "sim"; });
    REQUIRE(moved);
    co_await loop().sleep(1s);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_EQ(reason_of(client), "the simulation declines");
    set({});
    const Time mended = loop().now();
    auto back = co_await eventually(loop(), [&] { return client.transport() == "simpath"; });
    EXPECT_TRUE(back);
    EXPECT_LT(loop().now() - mended, 2s);
  });
}

// The client sees only the end of the byte stream, and the transport is not available at once.
TEST_F(FailoverTest, ItFailsBackToATransportThatWasLostWithTheStream) {
  build();
  TransportOptions options = simulated();
  options.retry_min = 100ms;
  run(simulated(), options, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    set({.transport_declined = 1});
    network().reset_streams();
    auto moved = co_await eventually(loop(), [&] { return client.transport() == "sim"; });
    REQUIRE(moved);
    // The peer may have ended, so the log does not blame the transport.
    EXPECT_TRUE(was_logged("connection to " + server.address() + " over simpath ended, connecting again"));
    EXPECT_FALSE(was_logged("broke"));
    set({});
    auto back = co_await eventually(loop(), [&] { return client.transport() == "simpath"; });
    EXPECT_TRUE(back);
    EXPECT_EQ(client.failovers(), 2U);
  });
}

TEST_F(FailoverTest, CallsUnderWayWhenItGoesBackEndWhereTheyBegan) {
  build();
  TransportOptions options = simulated();
  options.retry_min = 50ms;
  run(simulated(), options, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    network().reset_transports();
    auto moved = co_await eventually(loop(), [&] { return client.transport() == "sim"; });
    REQUIRE(moved);
    Scope scope;
    int answered = 0;
    bool stop = false;
    auto busy = [&]() -> Task<void> {
      while (!stop) {
        auto reply = co_await client.call<slowly>("busy");
        EXPECT_OK(reply);
        ++answered;
      }
    };
    for (int i = 0; i < 8; ++i) scope.spawn(busy());
    auto back = co_await eventually(loop(), [&] { return client.transport() == "simpath"; });
    EXPECT_TRUE(back);
    co_await loop().sleep(20ms);
    stop = true;
    co_await scope.join();
    EXPECT_GT(answered, 100);
    EXPECT_EQ(client.calls_in_flight(), 0U);
  });
}

TEST_F(FailoverTest, ASilentTransportIsLeftForTheStream) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    REQUIRE(client.transport() == "simpath");
    unsigned interceptions = 0;
    client.use([&](OutgoingCall&, Next next) -> Task<Result<void>> {
      ++interceptions;
      co_return co_await next();
    });
    network().vanish_transports();
    const CallOptions reply_options{.timeout = 20s, .idempotent = true};
    auto reply = co_await client.call<slowly>(reply_options, "x");
    REQUIRE_OK(reply);
    EXPECT_EQ(client.transport(), "sim");
    EXPECT_EQ(interceptions, 1U);  // docs/interceptors.md, "How often they run".
  });
}

TEST_F(FailoverTest, AServerThatIsGoneIsNotMovedTo) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    co_await server.shut_down(10ms);
    auto gone = co_await eventually(loop(), [&] { return !client.connected(); });
    EXPECT_TRUE(gone);
    const CallOptions reply_options{.idempotent = true};
    auto reply = co_await client.call<echo>(reply_options, "x");
    EXPECT_ERROR(reply, not_sent, "not connected any more");
    EXPECT_FALSE(was_logged("made anew"));
  });
}

TEST_F(FailoverTest, WhenEverythingBreaksAwaitedCallsStillEnd) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    build({}, seed);
    run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
      auto connected = co_await client.connect(server.address());
      REQUIRE_OK(connected);
      Scope scope;
      int ended = 0;
      auto one = [&](bool idempotent) -> Task<void> {
        const CallOptions reply_options{.idempotent = idempotent};
        auto reply = co_await client.call<slowly>(reply_options, "x");
        ++ended;
      };
      for (int i = 0; i < 20; ++i) scope.spawn(one(i % 2 == 0));
      network().reset_all();
      set({.refuse = 1});
      co_await scope.join();
      EXPECT_EQ(ended, 20);
      auto lost = co_await eventually(loop(), [&] { return !client.connected(); });
      EXPECT_TRUE(lost);
      set({});
      auto again = co_await client.connect(server.address());
      EXPECT_OK(again);
    });
  }
}

TEST_F(FailoverTest, AClientMayBeDestroyedWhileItMoves) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client&) -> Task<void> {
    ClientOptions options;
    options.transports = simulated();
    auto client = std::make_unique<Client>(loop(), over(network_of_test(), options));
    auto connected = co_await client->connect(server.address());
    REQUIRE_OK(connected);
    Scope scope;
    bool ended = false;
    auto one = [&]() -> Task<void> {
      const CallOptions reply_options{.idempotent = true};
      auto reply = co_await client->call<echo>(reply_options, "x");
      EXPECT_FALSE(reply);
      ended = true;
    };
    auto moving = co_await begins_to_move(*client);
    REQUIRE(moving);
    scope.spawn(one());
    client.reset();
    co_await scope.join();
    EXPECT_TRUE(ended);
  });
}

TEST_F(FailoverTest, AClientMayBeDestroyedWhileItConnects) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client&) -> Task<void> {
    auto client = std::make_unique<Client>(loop(), over(network_of_test(), ClientOptions{.transports = simulated()}));
    set({.delay_min = 5ms, .delay_max = 6ms});
    Scope scope;
    auto one = [&]() -> Task<void> {
      auto connected = co_await client->connect(server.address());
      EXPECT_ERROR(connected, unavailable, "the client was destroyed");
    };
    scope.spawn(one());
    scope.spawn(one());
    co_await loop().sleep(1ms);
    client.reset();
    co_await scope.join();
    {
      // The dropped coroutine is not even resumed.
      Scope dropped;
      client = std::make_unique<Client>(loop(), over(network_of_test(), ClientOptions{.transports = simulated()}));
      dropped.spawn(one());
      co_await loop().sleep(1ms);
      client.reset();
    }
  });
}

// A client that is closed during a failover stays closed: it does not connect again on its own.
TEST_F(FailoverTest, ClosedWhileItMovesItStaysClosed) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    Scope scope;
    bool ended = false;
    auto one = [&]() -> Task<void> {
      const CallOptions reply_options{.idempotent = true};
      auto reply = co_await client.call<echo>(reply_options, "x");
      EXPECT_FALSE(reply);
      ended = true;
    };
    auto moving = co_await begins_to_move(client);
    REQUIRE(moving);
    scope.spawn(one());
    client.close();
    co_await scope.join();
    EXPECT_TRUE(ended);
    EXPECT_FALSE(client.connected());
    co_await loop().sleep(1s);
    EXPECT_FALSE(client.connected());
    EXPECT_EQ(server.counters().connections_open, 0U);
    auto refused = co_await client.call<echo>("x");
    EXPECT_ERROR(refused, not_sent, "the client was closed");
    auto again = co_await client.connect(server.address());
    EXPECT_OK(again);
  });
}

// A caller that waits for a connection that is given up learns this at once, and may connect elsewhere.
TEST_F(FailoverTest, ClosedWhileItConnectsItMayConnectElsewhere) {
  build();
  run(simulated(), simulated(), [&](Server& server, Client& client) -> Task<void> {
    set({.delay_min = 5ms, .delay_max = 6ms});
    Scope scope;
    auto one = [&]() -> Task<void> {
      auto connected = co_await client.connect("nobody:1");
      EXPECT_ERROR(connected, unavailable, "the client was closed");
    };
    scope.spawn(one());
    client.close();
    auto connected = co_await client.connect(server.address());
    EXPECT_OK(connected);
    co_await scope.join();
    co_await loop().sleep(1s);
    EXPECT_EQ(server.counters().connections_open, 1U);
    auto reply = co_await client.call<echo>("here");
    EXPECT_OK(reply);
  });
}

TEST_F(FailoverTest, NamesThatAreNoTransportAreRefused) {
  build();
  run(simulated(), {.order = {"rmda"}}, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    EXPECT_ERROR(connected, invalid_argument, "TransportOptions::order names \"rmda\"");
  });
  run(simulated(), {.required = "tpc"}, [&](Server& server, Client& client) -> Task<void> {
    auto connected = co_await client.connect(server.address());
    EXPECT_ERROR(connected, invalid_argument, "TransportOptions::required names \"tpc\"");
  });
  ServerOptions options;
  options.listen = "server:0";
  options.transports.order = {"rmda"};
  EXPECT_ERROR(Server(loop(), over(network_of_test(), options)).start(), invalid_argument, "rmda");
}

}  // namespace hawser::failover
