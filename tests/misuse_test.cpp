// Programming errors end in an error or a message that names the mistake, and not in a hang or a silent crash.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::misuse_test {

using namespace testing_tools;

std::string_view echo(std::string_view text) { return text; }
Task<void> count(Writer<int> writer) {
  for (int i = 0; i < 10; ++i) {
    auto written = co_await writer.write(i);
    if (!written) co_return;
  }
}
Task<int> sum(Reader<int> reader) {
  int total = 0;
  for (;;) {
    auto item = co_await reader.next();
    if (!item || !*item) co_return total;
    total += **item;
  }
}

ServerOptions server_options() { return {.listen = "127.0.0.1:0", .exception_texts = true}; }
ClientOptions client_options() { return {.transports = {.required = "stream"}}; }

// A server on its own thread.
class Misuse : public ::testing::Test {
 protected:
  void SetUp() override {
    server.register_handler<echo, count, sum>();
    const Result<void> started = server.start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // Connects in a sync_wait() of its own.
  void connect(Client& client) {
    sync_wait([](Client& one, std::string address) -> Task<void> {
      auto connected = co_await one.connect(address);
      EXPECT_OK(connected);
    }(client, server.address()));
  }
  template <class Body>
  void run_connected(Body body) {
    Loop loop;
    loop.run([](std::string address, Body use) -> Task<void> {
      Client client(client_options());
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      co_await use(client);
    }(server.address(), std::move(body)));
  }

  Server server{server_options()};
};

Task<void> expect_call_fails(Client& client, ErrorCode code, std::string_view text) {
  auto reply = co_await client.call<echo>("hi");
  EXPECT_TRUE(is_error(reply, code, text));
  auto sent = co_await client.send_request<echo>("hi");
  EXPECT_TRUE(is_error(sent, code, text));
  auto opened = co_await client.open<count>();
  EXPECT_TRUE(is_error(opened, code, text));
}

TEST_F(Misuse, AClientIsUsedUnderTwoSyncWaits) {
  Client client(client_options());
  connect(client);
  EXPECT_FALSE(client.connected());
  sync_wait([](Client& one, std::string address) -> Task<void> {
    co_await expect_call_fails(one, ErrorCode::not_sent, "within one sync_wait()");
    // The client may be connected on the loop that runs now.
    auto connected = co_await one.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await one.call<echo>("hello");
    EXPECT_EQ(reply, "hello");
  }(client, server.address()));
}

TEST_F(Misuse, ALoopIsDestroyedBeforeItsClientAndPool) {
  auto loop = std::make_unique<Loop>();
  Client client(*loop, client_options());
  auto pool = ClientPool::create(*loop, server.address(), {.client = client_options()});
  loop->run([](Client& one, ClientPool& other, std::string address) -> Task<void> {
    auto connected = co_await one.connect(address);
    EXPECT_OK(connected);
    auto reply = co_await other.call<echo>(std::string("hello"));
    EXPECT_EQ(reply, "hello");
  }(client, *pool, server.address()));
  EXPECT_EQ(pool->connections(), 1U);
  loop.reset();
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(pool->connections(), 0U);
  sync_wait([](ClientPool& other) -> Task<void> {
    auto reply = co_await other.call<echo>(std::string("hello"));
    EXPECT_ERROR(reply, unavailable, "the loop of this pool has ended");
  }(*pool));
}

TEST_F(Misuse, AClientAndAPoolAreUsedFromAnotherLoop) {
  Loop loop;
  Client client(loop, client_options());
  auto pool = ClientPool::create(loop, server.address(), {.client = client_options()});
  const std::string address = server.address();
  loop.run([](Client& one, std::string to) -> Task<void> {
    auto connected = co_await one.connect(to);
    EXPECT_OK(connected);
  }(client, address));
  const auto use = [&] {
    sync_wait([](Client& one, ClientPool& other, std::string to) -> Task<void> {
      co_await expect_call_fails(one, ErrorCode::invalid_argument, "another loop");
      auto connected = co_await one.connect(to);
      EXPECT_ERROR(connected, invalid_argument, "another loop");
      auto reply = co_await other.call<echo>(std::string("hello"));
      EXPECT_ERROR(reply, invalid_argument, "another loop");
    }(client, *pool, address));
  };
  std::thread(use).join();
  // With a nested sync_wait(), which would wait for a reply that the outer loop receives.
  loop.run([](auto& nested) -> Task<void> {
    nested();
    co_return;
  }(use));
  loop.run([](Client& one) -> Task<void> {
    auto reply = co_await one.call<echo>("hello");
    EXPECT_EQ(reply, "hello");
  }(client));
}

TEST_F(Misuse, APoolIsDestroyedWhileARequestWaitsForAConnection) {
  sync_wait([]() -> Task<void> {
    // No server listens there, and the first pause is long.
    auto pool = ClientPool::create("127.0.0.1:1", {.client = client_options(), .backoff_min = patience});
    Scope scope;
    int refused = 0;
    for (int i = 0; i < 3; ++i) {
      scope.spawn([](ClientPool& own, int& failed) -> Task<void> {
        auto reply = co_await own.call<echo>(std::string("hello"));
        EXPECT_ERROR(reply, unavailable, "the pool was destroyed");
        ++failed;
      }(*pool, refused));
    }
    co_await Loop::current()->sleep(5ms);
    pool.reset();
    co_await scope.join();
    EXPECT_EQ(refused, 3);
  }());
}

TEST_F(Misuse, AReaderIsUsedAfterFinish) {
  run_connected([](Client& client) -> Task<void> {
    auto opened = co_await client.open<count>();
    REQUIRE_OK(opened);
    auto reader = opened->reader();
    auto finished = co_await opened->finish();
    EXPECT_OK(finished);
    // The items before the end can be read, and then the end.
    for (int i = 0; i < 10; ++i) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      EXPECT_EQ(*item, i);
    }
    auto end = co_await reader.next();
    REQUIRE_OK(end);
    EXPECT_EQ(*end, std::nullopt);

    auto late = opened->reader();
    auto none = co_await late.next();
    EXPECT_ERROR(none, invalid_argument, "after finish()");
    auto again = co_await opened->finish();
    EXPECT_ERROR(again, invalid_argument, "await it once");
  });
}

TEST_F(Misuse, AWriterIsUsedAfterFinish) {
  run_connected([](Client& client) -> Task<void> {
    auto opened = co_await client.open<sum>();
    REQUIRE_OK(opened);
    auto writer = opened->writer();
    auto written = co_await writer.write(7);
    EXPECT_OK(written);
    auto finished = co_await opened->finish();
    EXPECT_EQ(finished, 7);
    auto late = co_await writer.write(8);
    EXPECT_ERROR(late, cancelled, "the call has ended");
    writer.end();
    auto none = opened->writer();
    none.end();
    auto never = co_await none.write(9);
    EXPECT_ERROR(never, invalid_argument, "after finish()");
  });
}

TEST_F(Misuse, ReadersAndWritersOutliveADroppedCall) {
  run_connected([](Client& client) -> Task<void> {
    Reader<int> reader;
    Writer<int> writer;
    {
      auto reading = co_await client.open<count>();
      auto writing = co_await client.open<sum>();
      REQUIRE(reading && writing);
      reader = reading->reader();
      writer = writing->writer();
    }
    Result<std::optional<int>> item;
    do {
      auto next = co_await reader.next();
      item = std::move(next);
    } while (item && *item);
    EXPECT_ERROR(item, cancelled, "call dropped");
    auto written = co_await writer.write(1);
    EXPECT_ERROR(written, cancelled, "call dropped");
  });
}

TEST_F(Misuse, APendingCallIsAwaitedTwice) {
  run_connected([](Client& client) -> Task<void> {
    auto sent = co_await client.send_request<echo>("hello");
    REQUIRE_OK(sent);
    auto first = co_await std::move(*sent);
    EXPECT_EQ(first, "hello");
    auto second = co_await std::move(*sent);
    EXPECT_ERROR(second, invalid_argument, "await it once");
  });
}

// ---- Threads that do not run the loop ----

// Connects a client on a loop and calls `use` on another thread while the loop runs.
template <class Use>
void use_from_another_thread(const std::string& address, Use use) {
  Loop loop;
  loop.run([](Loop& here, std::string to, Use from_there) -> Task<void> {
    auto client = std::make_unique<Client>(client_options());
    auto connected = co_await client->connect(to);
    REQUIRE_OK(connected);
    auto pending = co_await client->send_request<echo>("hello");
    REQUIRE_OK(pending);
    auto streaming = co_await client->open<sum>();
    REQUIRE_OK(streaming);
    std::optional<PendingCall<echo>> call(std::move(*pending));
    std::thread([&] { from_there(client, call, *streaming); }).join();
    co_await here.sleep(1ms);
  }(loop, address, std::move(use)));
}

using MisuseDeathTest = Misuse;

TEST_F(MisuseDeathTest, AnotherThreadUsesWhatALoopOwns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* text = "is used by a thread other than the one that runs the loop";
  const std::string address = server.address();
  using Call = std::optional<PendingCall<echo>>;
  using Streaming = StreamingCall<sum>;
  EXPECT_DEATH(use_from_another_thread(address, [](auto& client, Call&, Streaming&) { client.reset(); }), text);
  EXPECT_DEATH(use_from_another_thread(address, [](auto& client, Call&, Streaming&) { client->close(); }), text);
  EXPECT_DEATH(use_from_another_thread(address, [](auto&, Call& call, Streaming&) { call.reset(); }), text);
  EXPECT_DEATH(use_from_another_thread(address, [](auto&, Call&, Streaming& one) { one.writer().end(); }), text);
  // A scope starts its tasks on the thread that spawns them.
  EXPECT_DEATH(use_from_another_thread(address,
                                       [](auto& client, Call&, Streaming&) {
                                         Scope scope;
                                         scope.spawn([](Client& one) -> Task<void> {
                                           auto reply = co_await one.call<echo>("hello");
                                           EXPECT_OK(reply);
                                         }(*client));
                                       }),
               text);
  EXPECT_DEATH(use_from_another_thread(address,
                                       [](auto&, Call& call, Streaming&) {
                                         Scope scope;
                                         scope.spawn([](PendingCall<echo> one) -> Task<void> {
                                           auto reply = co_await std::move(one);
                                           EXPECT_OK(reply);
                                         }(std::move(*call)));
                                       }),
               text);
  EXPECT_DEATH(use_from_another_thread(address,
                                       [](auto&, Call&, Streaming& one) {
                                         Scope scope;
                                         scope.spawn([](Writer<int> writer) -> Task<void> {
                                           auto written = co_await writer.write(1);
                                           EXPECT_OK(written);
                                         }(one.writer()));
                                       }),
               text);
}

TEST_F(MisuseDeathTest, AnotherThreadDestroysAPoolOrAServerOfALoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* text = "is used by a thread other than the one that runs the loop";
  EXPECT_DEATH(
      {
        Loop loop;
        auto pool = ClientPool::create(loop, server.address(), {.client = client_options()});
        loop.run([](auto& owned) -> Task<void> {
          std::thread([&] { owned.reset(); }).join();
          co_return;
        }(pool));
      },
      text);
  EXPECT_DEATH(
      {
        Loop loop;
        auto other = std::make_unique<Server>(loop, server_options());
        EXPECT_OK(other->start());
        loop.run([](auto& owned) -> Task<void> {
          std::thread([&] { owned.reset(); }).join();
          co_return;
        }(other));
      },
      text);
}

// ---- Loops that run only during calls ----

// Nobody answers the server's pings during the pause. The client learns the end before it sends, and why.
TEST(LoopsWithPauses, ALongPauseEndsTheConnectionWithTheReason) {
  ServerOptions impatient = server_options();
  impatient.ping_interval = 5ms;
  Server server(impatient);
  server.register_handler<echo>();
  ASSERT_TRUE(server.start());
  ClientOptions options = client_options();
  options.ping_interval = 5ms;
  Loop loop;
  Client client(loop, options);
  auto pool = ClientPool::create(loop, server.address(), {.client = options});
  // Again, if a machine that is paused here lets the server lose patience before the pause.
  while (!client.connected() || pool->connections() == 0) {
    loop.run([](Client& one, ClientPool& other, std::string to) -> Task<void> {
      auto connected = co_await one.connect(to);
      auto reply = co_await other.call<echo>("hello");
    }(client, *pool, server.address()));
  }
  const std::uint64_t before = server.counters().connections_accepted;
  std::this_thread::sleep_for(2 * options.ping_interval);
  for (const auto end = std::chrono::steady_clock::now() + patience; server.counters().connections_open != 0;) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(1ms);
  }
  // The server's loop closes the sockets before it runs this.
  std::atomic<bool> closed{false};
  server.loops().front()->post([&] {
    closed.store(true);
    closed.notify_all();
  });
  closed.wait(false);
  loop.run([](Client& one, ClientPool& other) -> Task<void> {
    auto reply = co_await one.call<echo>("hello");
    EXPECT_ERROR(reply, not_sent, "ms and answered no ping in that time");
    // A pool makes another connection. Its server may be too impatient for it, too, but it is tried.
    auto pooled = co_await other.call<echo>("hello");
    EXPECT_TRUE(pooled || pooled.error().code != ErrorCode::internal) << error_of(pooled);
  }(client, *pool));
  EXPECT_GT(server.counters().connections_accepted, before);
}

// ---- Servers that their own handlers end ----

struct Owner {
  std::unique_ptr<Server> server;
  int stop() {
    server->stop();
    return 1;
  }
  int destroy() {
    server.reset();
    return 1;
  }
  Task<int> shut_down() {
    co_await server->shut_down(10ms);
    co_return 1;
  }
  Task<int> shut_down_for_ever(Context& context, int suspensions) {
    for (int i = 0; i < suspensions; ++i) {
      co_await context.loop().sleep(1ms);
    }
    co_await server->shut_down(forever);
    co_return 1;
  }
  // The coroutine is resumed for the last time by the end of another coroutine.
  Task<int> shut_down_later(Context& context) {
    static_cast<void>(co_await context.loop().sleep(1ms, context.token()));
    co_await server->shut_down(forever);
    co_return 1;
  }
  Task<int> destroy_later(Context& context) {
    co_await context.loop().sleep(1ms);
    server.reset();
    co_return 1;
  }
};

// The server waits for this call among others, and ends it with them.
TEST(MisuseOfServers, AHandlerAwaitsTheShutDownOfItsServer) {
  Loop loop;
  Owner owner;
  owner.server = std::make_unique<Server>(loop, server_options());
  owner.server->register_handler<&Owner::shut_down>(&owner);
  const Result<void> started = owner.server->start();
  ASSERT_TRUE(started) << error_of(started);
  loop.run([](Owner& own) -> Task<void> {
    Client client(client_options());
    auto connected = co_await client.connect(own.server->address());
    REQUIRE_OK(connected);
    auto reply = co_await client.call<&Owner::shut_down>();
    EXPECT_FALSE(reply);
    co_await own.server->shut_down(10ms);
    EXPECT_EQ(own.server->counters().calls_in_flight, 0U);
    EXPECT_EQ(own.server->counters().connections_open, 0U);
  }(owner));
}

// The handler would wait for its own call without end. The server continues to work.
TEST(MisuseOfServers, AHandlerAwaitsTheShutDownOfItsServerForEver) {
  Loop loop;
  Owner owner;
  owner.server = std::make_unique<Server>(loop, server_options());
  owner.server->register_handler<&Owner::shut_down_for_ever, &Owner::shut_down_later>(&owner);
  const Result<void> started = owner.server->start();
  ASSERT_TRUE(started) << error_of(started);
  loop.run([](Owner& own) -> Task<void> {
    Client client(client_options());
    auto connected = co_await client.connect(own.server->address());
    REQUIRE_OK(connected);
    for (const int suspensions : {0, 1, 2}) {
      auto reply = co_await client.call<&Owner::shut_down_for_ever>(suspensions);
      EXPECT_ERROR(reply, internal, "shut_down(forever) is awaited by a handler");
    }
    auto later = co_await client.call<&Owner::shut_down_later>();
    EXPECT_ERROR(later, internal, "shut_down(forever) is awaited by a handler");
    client.close();
    co_await own.server->shut_down(forever);
    EXPECT_EQ(own.server->counters().connections_open, 0U);
  }(owner));
}

template <auto handler>
void call_on_own_threads(HandlerOptions options, std::string_view expected) {
  Owner owner;
  owner.server = std::make_unique<Server>(server_options());
  owner.server->register_handler<handler>(&owner, options);
  const Result<void> started = owner.server->start();
  ASSERT_TRUE(started) << error_of(started);
  sync_wait([](std::string address, std::string_view text) -> Task<void> {
    Client client(client_options());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<handler>();
    EXPECT_ERROR(reply, internal, text);
  }(owner.server->address(), expected));
}

TEST(MisuseOfServers, AnOffloadedHandlerStopsItsServer) {
  call_on_own_threads<&Owner::stop>({.offload = true}, "offloaded handler");
}

// A handler stops another server, which starts and stops meanwhile; for ThreadSanitizer.
TEST(MisuseOfServers, AnOffloadedHandlerStopsAnotherServer) {
  for (int round = 0; round < 20; ++round) {
    Owner other;
    other.server = std::make_unique<Server>(server_options());
    Server one(server_options());
    one.register_handler<&Owner::stop>(&other, {.offload = true});
    const Result<void> started = one.start();
    ASSERT_TRUE(started) << error_of(started);
    std::thread meanwhile([&] {
      static_cast<void>(other.server->start());
      other.server->stop(Duration::zero());
    });
    sync_wait([](std::string address) -> Task<void> {
      Client client(client_options());
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<&Owner::stop>();
      EXPECT_OK(reply);
    }(one.address()));
    meanwhile.join();
  }
}

TEST(MisuseOfServersDeathTest, AHandlerDestroysItsServer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(call_on_own_threads<&Owner::destroy>({}, ""), "destroyed by one of its own handlers");
}

TEST(MisuseOfServersDeathTest, AnOffloadedHandlerDestroysItsServer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(call_on_own_threads<&Owner::destroy>({.offload = true}, ""), "destroyed by one of its own handlers");
}

template <auto handler>
void call_on_the_callers_loop() {
  Loop loop;
  Owner owner;
  owner.server = std::make_unique<Server>(loop, server_options());
  owner.server->register_handler<handler>(&owner);
  if (!owner.server->start()) return;
  loop.run([](std::string address) -> Task<void> {
    Client client(client_options());
    auto connected = co_await client.connect(address);
    auto reply = co_await client.call<handler>();
  }(owner.server->address()));
}

TEST(MisuseOfServersDeathTest, AHandlerDestroysItsServerOnTheCallersLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(call_on_the_callers_loop<&Owner::destroy>(), "destroyed by one of its own handlers");
}

TEST(MisuseOfServersDeathTest, AResumedHandlerDestroysItsServerOnTheCallersLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(call_on_the_callers_loop<&Owner::destroy_later>(), "destroyed by one of its own handlers");
}

// A token's callback destroys the server while it stops.
void destroy_by_callback(bool at_the_end_of_the_grace) {
  Loop loop;
  Owner owner;
  owner.server = std::make_unique<Server>(loop, server_options());
  const auto background = [&owner, at_the_end_of_the_grace](Background given) -> Task<void> {
    const std::stop_callback destroys(at_the_end_of_the_grace ? given.token : given.stopping,
                                      [&owner] { owner.server.reset(); });
    co_await Loop::current()->sleep(1h);
  };
  static_cast<void>(owner.server->spawn(background));
  if (!owner.server->start()) return;
  loop.run([](Loop& on, Owner& own) -> Task<void> {
    co_await on.sleep(10ms);
    co_await own.server->shut_down(1ms);
  }(loop, owner));
}

TEST(MisuseOfServersDeathTest, ACallbackOfAStopDestroysItsServerOnTheCallersLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(destroy_by_callback(false), "by a callback of a token that it stops");
  EXPECT_DEATH(destroy_by_callback(true), "by a callback of a token that it stops");
}

}  // namespace hawser::misuse_test
