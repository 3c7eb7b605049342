#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/lifecycle/virtual_time.h"
#include "tests/raw_peer.h"
#include "transport/network_access.h"
#include "wire/hello.h"

// Start and stop of servers, and the effects of connections that never send anything. Tests that depend on time use
// virtual time.
namespace hawser::lifecycle {

using namespace testing_tools;

// ---- Time ----

TEST_F(VirtualTime, ForeverIsATimeInEveryOption) {
  ServerOptions options;
  options.handshake_timeout = forever;
  options.ping_interval = forever;
  auto server = make_server(options);
  server->register_handler<echo, work>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    ClientOptions with;
    with.connect_timeout = forever;
    with.call_timeout = forever;
    with.ping_interval = forever;
    with.transports.retry_min = forever;
    with.transports.retry_max = forever;
    Client client(loop, over(network, with));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo>("x");
    EXPECT_EQ(reply, "x");
    auto pending = co_await client.send_request<work>(3U);
    REQUIRE_OK(pending);
    co_await loop.sleep(1s);
    co_await server->shut_down(forever);
    auto done = co_await std::move(*pending);
    EXPECT_EQ(done, 1) << "the call was cancelled";
  });
}

TEST_F(VirtualTime, ForeverIsATimeInAPool) {
  run([&]() -> Task<void> {
    PoolOptions options;
    options.idle_timeout = forever;
    options.backoff_min = forever;
    options.backoff_max = forever;
    options.connect_attempts_max = 1;
    auto server = make_server();
    server->register_handler<echo>();
    REQUIRE_OK(server->start());
    const auto pool = ClientPool::create(loop, server->address(), over(network, options));
    auto reply = co_await pool->call<echo>("x");
    EXPECT_EQ(reply, "x");
    // The pause before the second attempt is unlimited. It must not be computed as a time in the past.
    const auto dead = ClientPool::create(loop, "nobody:1", over(network, options));
    auto none = co_await dead->call<echo>("x");
    EXPECT_FALSE(none);
    Scope scope;
    scope.spawn([](ClientPool& to_nobody) -> Task<void> {
      auto second = co_await to_nobody.call<echo>("x");
      EXPECT_ERROR(second, deadline_exceeded, "");
    }(*dead));
    co_await loop.sleep(1h);
  });
}

// ---- Stopping ----

// The server waits only for the client's answer to GOAWAY, and the client sends none.
TEST_F(VirtualTime, AClientThatIgnoresGoawayDoesNotHoldTheServerUp) {
  auto server = make_server();
  server->register_handler<echo, work>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto deaf = co_await connect_raw(loop, *network, server->address());
    REQUIRE(deaf);
    deaf->send(wire::encode_hello(usual_hello()));
    Client busy(loop, over(network, ClientOptions()));
    auto connected = co_await busy.connect(server->address());
    REQUIRE_OK(connected);
    auto pending = co_await busy.send_request<work>(20U);
    REQUIRE_OK(pending);
    co_await loop.sleep(1s);
    EXPECT_EQ(server->counters().connections_open, 2U);
    const Time start = loop.now();
    Scope scope;
    scope.spawn([](Server& own) -> Task<void> { co_await own.shut_down(60s); }(*server));
    auto gone = co_await eventually(loop, [&] { return deaf->ended(); });
    EXPECT_TRUE(gone);
    EXPECT_LE(loop.now() - start, 2s);
    // The call of the other client continues meanwhile.
    auto done = co_await std::move(*pending);
    EXPECT_EQ(done, 1);
    co_await scope.join();
    EXPECT_LE(loop.now() - start, 21s);
  });
}

TEST_F(VirtualTime, ASecondStopShortensTheGrace) {
  auto server = make_server();
  server->register_handler<work>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    Client client(loop, over(network, ClientOptions()));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    const CallOptions pending_options{.timeout = forever};
    auto pending = co_await client.send_request<work>(pending_options, 3600U);
    REQUIRE_OK(pending);
    auto begun = co_await eventually(loop, [&] { return server->counters().calls_in_flight == 1; });
    EXPECT_TRUE(begun);
    const Time start = loop.now();
    const auto stop = [](Server& own, Duration grace) -> Task<void> { co_await own.shut_down(grace); };
    Scope scope;
    scope.spawn(stop(*server, 1h));
    scope.spawn(stop(*server, 1s));
    co_await scope.join();
    EXPECT_LE(loop.now() - start, 3s);
    auto done = co_await std::move(*pending);
    EXPECT_EQ(done, 0);
  });
}

TEST_F(VirtualTime, ShutDownBeforeStartIsNotLost) {
  run([&]() -> Task<void> {
    auto server = make_server();
    co_await server->shut_down();
    const Result<void> started = server->start();
    EXPECT_ERROR(started, cancelled, "stop() was called before the server started");
  });
}

inline ServerOptions threaded(unsigned threads) {
  ServerOptions options;
  options.threads = threads;
  options.loop = quiet();
  return options;
}

// A SIGTERM during start-up calls stop() before run().
TEST(Stopping, BeforeRunIsNotLost) {
  Server server(threaded(2));
  server.register_handler<echo>();
  server.stop();
  EXPECT_OK(server.run());
  const Result<void> again = server.start();
  EXPECT_ERROR(again, invalid_argument, "started before");
  Server other(threaded(1));
  other.stop(forever);
  const Result<void> started = other.start();
  EXPECT_ERROR(started, cancelled, "stop() was called before the server started");
}

TEST(Stopping, AtAnyMomentOfStarting) {
  for (int round = 0; round < 60; ++round) {
    Server server(threaded(3));
    server.register_handler<echo>();
    std::atomic<bool> begun{false};
    std::thread runs([&] {
      begun.store(true);
      const Result<void> outcome = server.run();
      EXPECT_OK(outcome);
    });
    while (!begun.load()) std::this_thread::yield();
    for (int i = 0; i < round * 200; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (round % 2 == 0) {
      server.stop(round % 3 == 0 ? Duration::zero() : forever);
    } else {
      std::thread one([&] { server.stop(); });
      std::thread two([&] { server.stop(); });
      one.join();
      two.join();
    }
    EXPECT_EQ(server.counters().connections_open, 0U);
    runs.join();
  }
}

inline Server* stopped_by_handler = nullptr;
inline int halt(bool at_once) {
  stopped_by_handler->stop(at_once ? Duration::zero() : Duration(1h));
  return 7;
}
inline Task<int> halt_later(Context& context) {
  co_await context.loop().sleep(1ms);
  stopped_by_handler->stop(1h);
  co_return 8;
}

TEST(Stopping, FromAHandler) {
  for (int way = 0; way < 3; ++way) {
    Server server(threaded(2));
    stopped_by_handler = &server;
    server.register_handler<halt, halt_later>();
    ASSERT_TRUE(server.start());
    const std::string address = server.address();
    sync_wait([](std::string to, int how) -> Task<void> {
      Client client;
      auto connected = co_await client.connect(to);
      REQUIRE_OK(connected);
      if (how == 2) {
        auto reply = co_await client.call<halt_later>();
        EXPECT_EQ(reply, 8);
      } else {
        auto reply = co_await client.call<halt>(how == 1);
        EXPECT_EQ(reply, 7);
      }
      auto closed = co_await eventually(*Loop::current(), [&] { return !client.connected() || client.going_away(); });
      EXPECT_TRUE(closed);
    }(address, way));
    server.stop(1h);  // Returns although a thread of the server was the first to call stop().
    EXPECT_EQ(server.counters().connections_open, 0U);
  }
}

TEST(Stopping, FromAHandlerEndsRun) {
  ServerOptions options = threaded(2);
  options.listen = "unix:@hawser-lifecycle-" + std::to_string(getpid());
  Server server(options);
  stopped_by_handler = &server;
  server.register_handler<halt>();
  std::thread runs([&] { EXPECT_OK(server.run()); });
  sync_wait([](std::string to) -> Task<void> {
    Client client;
    // Wait until the server listens.
    for (bool connected = false; !connected;) {
      auto outcome = co_await client.connect(to);
      connected = outcome.has_value();
    }
    auto reply = co_await client.call<halt>(false);
    EXPECT_EQ(reply, 7);
  }(options.listen));
  runs.join();
}

// ---- Connections that never say hello ----

TEST_F(VirtualTime, SilentConnectionsDoNotShutNewClientsOut) {
  ServerOptions options;
  options.handshakes_max = 4;
  options.handshake_timeout = forever;
  auto server = make_server(options);
  server->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto silent = co_await connect_silent(loop, *network, server->address(), 4);
    REQUIRE(silent.size() == 4);
    // A HELLO that is never complete counts as silence, too.
    silent[1]->send(Bytes(wire::encode_hello(usual_hello())).first(5));
    Client client(loop, over(network, ClientOptions()));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo>("x");
    EXPECT_EQ(reply, "x");
    auto evicted = co_await eventually(loop, [&] { return silent[0]->ended(); });
    EXPECT_TRUE(evicted);
    EXPECT_NE(silent[0]->refusal().find("handshakes_max (4)"), std::string::npos) << silent[0]->refusal();
    for (int i = 1; i < 4; ++i) EXPECT_FALSE(silent[static_cast<std::size_t>(i)]->ended()) << i;
    EXPECT_EQ(server->counters().connections_refused, 1U);
    // A client that sends its HELLO late is served.
    silent[3]->send(wire::encode_hello(usual_hello()));
    auto greeted = co_await eventually(loop, [&] { return !silent[3]->got().empty(); });
    EXPECT_TRUE(greeted);
    EXPECT_EQ(silent[3]->refusal(), "no refusal");
    silent.clear();
    co_await server->shut_down(1s);
  });
}

// Clients that offer a transport and never answer its selection count as silent, too.
TEST_F(VirtualTime, UnansweredSelectionsDoNotShutNewClientsOut) {
  network->set_options({.make_transport = &transport::make_sim_transport});
  ServerOptions options;
  options.handshakes_max = 3;
  options.handshake_timeout = forever;
  options.transports.order = {"simpath"};
  auto server = make_server(options);
  server->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    wire::Hello hello = usual_hello();
    hello.offers = {{"simpath", {}}};
    std::vector<std::unique_ptr<RawStream>> unanswering;
    for (int i = 0; i < 3; ++i) {
      auto one = co_await connect_raw(loop, *network, server->address());
      REQUIRE(one);
      one->send(wire::encode_hello(hello));
      unanswering.push_back(std::move(one));
    }
    auto selected = co_await eventually(
        loop, [&] { return std::ranges::all_of(unanswering, [](const auto& one) { return !one->got().empty(); }); });
    EXPECT_TRUE(selected);
    Client client(loop, over(network, ClientOptions()));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo>("x");
    EXPECT_EQ(reply, "x");
    auto evicted = co_await eventually(loop, [&] { return unanswering[0]->ended(); });
    EXPECT_TRUE(evicted);
    EXPECT_FALSE(unanswering[1]->ended());
    unanswering.clear();
    co_await server->shut_down(1s);
  });
}

TEST_F(VirtualTime, AConnectionThatFindsNoRoomIsToldWhy) {
  ServerOptions options;
  options.handshakes_max = 0;
  auto server = make_server(options);
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    Client client(loop, over(network, ClientOptions()));
    auto connected = co_await client.connect(server->address());
    EXPECT_ERROR(connected, overloaded, "handshakes_max (0)");
    EXPECT_EQ(server->counters().connections_refused, 1U);
  });
}

// Clients that connect at the same time, as after a restart, and send correct HELLOs are not refused because of
// handshakes_max.
TEST(Storm, ClientsThatComeAtOnceAreHeardBeforeMoreAreAccepted) {
  for (const PollerKind poller : {PollerKind::epoll, PollerKind::io_uring}) {
    LoopOptions on_loop = quiet();
    on_loop.poller = poller;
    Loop loop(on_loop);
    ServerOptions options;
    options.handshakes_max = 256;
    Server server(loop, options);
    ASSERT_TRUE(server.start());
    std::vector<RawSocket> clients;
    for (std::size_t i = 0; i < 400; ++i) {
      clients.push_back(RawSocket::connected_to(server.address()));
      clients.back().send(wire::encode_hello(usual_hello()));
    }
    loop.run([](Loop& here, Server& own) -> Task<void> {
      auto all = co_await eventually(here, [&] { return own.counters().connections_open == 400; });
      EXPECT_TRUE(all);
    }(loop, server));
    EXPECT_EQ(server.counters().connections_refused, 0U);
    EXPECT_EQ(server.counters().handshakes_failed, 0U);
  }
}

// ---- Descriptors that the poller does not take ----

// Makes epoll refuse new descriptors on this thread from now on. Returns false if the kernel does not allow that.
inline bool forbid_epoll_add() {
  const std::array<sock_filter, 6> program{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_epoll_ctl},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args) + sizeof(std::uint64_t)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, EPOLL_CTL_ADD},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSPC},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog filter{program.size(), const_cast<sock_filter*>(program.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Neither the server's process nor the client's ends: one connection is dropped, one attempt fails.
TEST(Descriptors, WhatThePollerDoesNotTakeIsDropped) {
  bool skipped = false;
  // On a separate thread, since the change can't be undone.
  std::thread([&] {
    std::vector<std::string> lines;
    LoopOptions options;
    options.poller = PollerKind::epoll;
    options.log = [&](LogLevel, std::string_view, std::string_view text) { lines.emplace_back(text); };
    Loop loop(options);
    Server server(loop, ServerOptions{});
    server.register_handler<echo>();
    loop.run([](Loop& on, Server& own, bool& cannot, std::vector<std::string>& log) -> Task<void> {
      REQUIRE_OK(own.start());
      Client client(on, ClientOptions{});
      auto connected = co_await client.connect(own.address());
      REQUIRE_OK(connected);
      cannot = !forbid_epoll_add();
      if (cannot) co_return;
      RawSocket refused = RawSocket::connected_to(own.address());
      auto dropped = co_await eventually(on, [&] { return own.counters().connections_refused == 1; });
      EXPECT_TRUE(dropped);
      EXPECT_TRUE(refused.closed_by_peer());
      EXPECT_TRUE(
          std::ranges::any_of(log, [](const std::string& line) { return line.contains("fs.epoll.max_user_watches"); }));
      Client late(on, ClientOptions{});
      auto failed = co_await late.connect(own.address());
      EXPECT_ERROR(failed, unavailable, "epoll_ctl");
      auto reply = co_await client.call<echo>("x");
      EXPECT_EQ(reply, "x");
    }(loop, server, skipped, lines));
  }).join();
  if (skipped) GTEST_SKIP() << "the kernel lets us install no system call filter";
}

// ---- fork() ----

// Parent and child share the pollers of the loops: a child that stopped its copy of the server would stop the parent's
// listening.
TEST(ServerLifecycle, AChildsCopyStopsNothing) {
  auto server = std::make_unique<Server>(ServerOptions{.listen = "127.0.0.1:0", .loop = quiet()});
  server->register_handler<echo>();
  ASSERT_TRUE(server->start().has_value());
  const pid_t child = fork();
  if (child == 0) {
    server->stop();
    server.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  const auto talk = [](std::string address) -> Task<void> {
    Client client;
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo>("x");
    EXPECT_EQ(reply, "x");
  };
  sync_wait(talk(server->address()));
}

}  // namespace hawser::lifecycle
