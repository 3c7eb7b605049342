#include "tests/outlived_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/channel.h"
#include "hawser/interceptor.h"
#include "hawser/memory.h"
#include "hawser/retry.h"
#include "hawser/when.h"
#include "hawser/with_timeout.h"
#include "tests/raw_peer.h"

// A coroutine that waits may be destroyed after its loop, whatever it waits for.
namespace hawser::outlived_loop {

using namespace testing_tools;

Task<std::string> never(Context& context, std::string text) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return text;
}
Task<void> silent(Context& context, Writer<int>) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
}
Task<void> deaf(Context& context, Reader<std::string>) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
}

// The coroutines use it. It outlives the loop, as they do.
struct World {
  explicit World(const std::string& to, const std::string& silent_peer) : address(to), deaf_address(silent_peer) {}

  std::string address;       // The server has it.
  std::string deaf_address;  // Its listener accepts nothing.
  std::string transport;     // TransportOptions::required.
  std::unique_ptr<Client> client;
  std::unique_ptr<Client> unconnected;
  std::unique_ptr<Client> intercepted;
  std::shared_ptr<ClientPool> pool;
  std::optional<StreamingCall<silent>> reading;
  std::optional<StreamingCall<deaf>> writing;
  std::string text = std::string(100, 'x');
  std::string large = std::string(1 << 20, 'x');
  Event event;
  Semaphore semaphore{1};
  Mutex mutex;
  Latch latch{1};
  Channel<int> channel{1};
  std::stop_source stop;
  std::atomic<bool> loop_ends = false;
};

using Wait = Task<void> (*)(Loop&, World&);
struct Case {
  const char* name;
  Wait wait;
};

Task<void> forever_in(Loop& loop) { co_await loop.sleep(1h); }
Task<void> hold_mutex(Loop& loop, World& world) {
  const Permit held = co_await world.mutex.lock();
  co_await forever_in(loop);
}
Task<void> lock_mutex(World& world) { const Permit held = co_await world.mutex.lock(); }

const std::vector<Case> cases = {
    {"Sleep", [](Loop& loop, World&) -> Task<void> { co_await loop.sleep(1h); }},
    {"SleepWithToken",
     [](Loop& loop, World& world) -> Task<void> { auto slept = co_await loop.sleep(1h, world.stop.get_token()); }},
    {"Offload",
     [](Loop& loop, World& world) -> Task<void> {
       auto work = [&world] {
         while (!world.loop_ends) std::this_thread::sleep_for(1ms);
         std::this_thread::sleep_for(10ms);  // The loop waits for its end.
       };
       auto done = co_await loop.offload(std::move(work));
     }},
    {"Event", [](Loop&, World& world) -> Task<void> { co_await world.event.wait(); }},
    {"EventWithToken",
     [](Loop&, World& world) -> Task<void> { auto set = co_await world.event.wait(world.stop.get_token()); }},
    {"Latch", [](Loop&, World& world) -> Task<void> { co_await world.latch.wait(); }},
    {"Channel", [](Loop&, World& world) -> Task<void> { auto item = co_await world.channel.receive(); }},
    {"FullChannel",
     [](Loop&, World& world) -> Task<void> {
       auto first = co_await world.channel.send(1);
       auto second = co_await world.channel.send(2);
     }},
    // Destroying the holder grants the permit to a coroutine whose loop has ended.
    {"MutexThatIsHeld",
     [](Loop& loop, World& world) -> Task<void> {
       Scope holder;
       Scope waiter;
       waiter.spawn(lock_mutex(world));  // Granted, and not resumed: the mutex is free.
       holder.spawn(hold_mutex(loop, world));
       waiter.spawn(lock_mutex(world));
       co_await forever_in(loop);
     }},
    {"Scope",
     [](Loop& loop, World&) -> Task<void> {
       Scope inner;
       inner.spawn(forever_in(loop));
       co_await inner.join();
     }},
    {"ScopeThatIsClearedBeforeItsJoiner",
     [](Loop& loop, World&) -> Task<void> {
       Scope joiners;
       Scope inner;
       inner.spawn(forever_in(loop));
       joiners.spawn([](Scope& joined) -> Task<void> { co_await joined.join(); }(inner));
       co_await forever_in(loop);
     }},
    {"WhenAll", [](Loop& loop, World&) -> Task<void> { co_await when_all(forever_in(loop), forever_in(loop)); }},
    {"WithTimeout",
     [](Loop& loop, World& world) -> Task<void> {
       auto work = [&loop](std::stop_token token) { return loop.sleep(1h, std::move(token)); };
       auto done = co_await with_timeout(1h, std::move(work), world.stop.get_token());
     }},
    {"Connect",
     [](Loop&, World& world) -> Task<void> {
       auto connected = co_await world.unconnected->connect(world.deaf_address);
     }},
    {"SecondConnect",
     [](Loop&, World& world) -> Task<void> {
       Scope first;
       first.spawn(
           [](World& of) -> Task<void> { auto connected = co_await of.unconnected->connect(of.deaf_address); }(world));
       auto connected = co_await world.unconnected->connect(world.deaf_address);
     }},
    {"Call", [](Loop&, World& world) -> Task<void> { auto reply = co_await world.client->call<never>(world.text); }},
    {"CallWithOptions",
     [](Loop&, World& world) -> Task<void> {
       const CallOptions options{.timeout = 1h, .token = world.stop.get_token()};
       auto reply = co_await world.client->call<never>(options, world.text);
     }},
    {"LargeCall",
     [](Loop&, World& world) -> Task<void> { auto reply = co_await world.client->call<never>(world.large); }},
    {"WholeReply",
     [](Loop&, World& world) -> Task<void> { auto reply = co_await world.client->call<never>(world.text).reply(); }},
    {"PendingCall",
     [](Loop&, World& world) -> Task<void> {
       auto sent = co_await world.client->send_request<never>(world.text);
       REQUIRE_OK(sent);
       auto reply = co_await std::move(*sent);
     }},
    {"InterceptedCall",
     [](Loop&, World& world) -> Task<void> { auto reply = co_await world.intercepted->call<never>(world.text); }},
    {"Ping", [](Loop&, World& world) -> Task<void> { auto answered = co_await world.client->ping(); }},
    {"Next",
     [](Loop&, World& world) -> Task<void> {
       auto reader = world.reading->reader();
       auto item = co_await reader.next();
     }},
    {"NextOfOwnCall",
     [](Loop&, World& world) -> Task<void> {
       auto opened = co_await world.client->open<silent>();
       REQUIRE_OK(opened);
       auto reader = opened->reader();
       auto item = co_await reader.next();
     }},
    {"ReadView",
     [](Loop&, World& world) -> Task<void> {
       auto reader = world.reading->reader();
       auto item = co_await reader.read_view();
     }},
    {"Write",
     [](Loop&, World& world) -> Task<void> {
       auto writer = world.writing->writer();
       for (;;) {
         auto written = co_await writer.write(world.text);
         if (!written) co_return;
       }
     }},
    {"LargeWrite",
     [](Loop&, World& world) -> Task<void> {
       auto writer = world.writing->writer();
       for (;;) {
         auto written = co_await writer.write(world.large);
         if (!written) co_return;
       }
     }},
    {"Finish", [](Loop&, World& world) -> Task<void> { auto finished = co_await world.writing->finish(); }},
    {"PoolCall", [](Loop&, World& world) -> Task<void> { auto reply = co_await world.pool->call<never>(world.text); }},
    {"PoolReply",
     [](Loop&, World& world) -> Task<void> { auto reply = co_await world.pool->call<never>(world.text).reply(); }},
    {"PoolStream",
     [](Loop&, World& world) -> Task<void> {
       auto opened = co_await world.pool->open<silent>();
       REQUIRE_OK(opened);
       auto reader = opened->reader();
       auto item = co_await reader.next();
     }},
    {"PoolOpening",
     [](Loop& loop, World& world) -> Task<void> {
       auto pool = ClientPool::create(loop, world.deaf_address);
       auto opened = co_await pool->open<silent>();
     }},
    {"PoolWithoutConnection",
     [](Loop& loop, World& world) -> Task<void> {
       auto pool = ClientPool::create(loop, world.deaf_address);
       auto reply = co_await pool->call<never>(world.text);
     }},
    {"Retrying",
     [](Loop&, World& world) -> Task<void> {
       Retrying retrying(*world.client);
       auto reply = co_await retrying.call<never>(world.text);
     }},
    {"RetryingReply",
     [](Loop&, World& world) -> Task<void> {
       Retrying retrying(*world.pool);
       auto reply = co_await retrying.call<never>(world.text).reply();
     }},
    {"RetryingPause",
     [](Loop&, World& world) -> Task<void> {
       Retrying retrying(*world.unconnected, {.backoff_first = 1h});
       auto opened = co_await retrying.open<silent>();
     }},
    {"OwnClient",
     [](Loop& loop, World& world) -> Task<void> {
       Client own(loop, {.transports = {.required = world.transport}});
       auto connected = co_await own.connect(world.address);
       REQUIRE_OK(connected);
       auto reply = co_await own.call<never>(world.text);
     }},
};

struct Parameter {
  Case one;
  const char* transport;
  bool another_loop;
};

class OutlivedLoop : public ::testing::TestWithParam<Parameter> {};

TEST_P(OutlivedLoop, ByACoroutineThatWaits) {
  const Parameter& parameter = GetParam();
  Server server({.listen = "127.0.0.1:0", .loop = {.log = no_log()}});
  server.register_handler<never, silent, deaf>();
  ASSERT_TRUE(server.start());
  RawListener listener;
  World world(server.address(), listener.address());
  world.transport = parameter.transport;
  const auto prepare = [&world](Loop& loop) -> Task<void> {
    const ClientOptions options{.transports = {.required = world.transport}};
    world.client = std::make_unique<Client>(loop, options);
    world.unconnected = std::make_unique<Client>(loop, options);
    world.intercepted = std::make_unique<Client>(loop, options);
    world.intercepted->use([](OutgoingCall&, Next next) -> Task<Result<void>> { co_return co_await next(); });
    world.pool = ClientPool::create(loop, world.address, {.client = options});
    auto connected = co_await world.client->connect(world.address);
    REQUIRE_OK(connected);
    auto also = co_await world.intercepted->connect(world.address);
    REQUIRE_OK(also);
    auto reading = co_await world.client->open<silent>();
    auto writing = co_await world.client->open<deaf>();
    REQUIRE(reading && writing);
    world.reading.emplace(std::move(*reading));
    world.writing.emplace(std::move(*writing));
  };
  // A ping is answered at once unless the server's loop is busy.
  const bool ping = parameter.one.name == std::string_view("Ping");
  struct Signals {
    std::atomic<bool> busy = false;
    std::atomic<bool> go_on = false;
  };
  const auto signals = std::make_shared<Signals>();  // The server's thread uses them after they have changed.
  const auto wait = [&](Loop& loop) {
    if (ping) {
      server.loops().front()->post([signals] {
        signals->busy.store(true);
        signals->busy.notify_all();
        signals->go_on.wait(false);
      });
      signals->busy.wait(false);
    }
    return parameter.one.wait(loop, world);
  };
  destroy_after_loop(prepare, wait, parameter.another_loop, [&] { world.loop_ends = true; });
  signals->go_on.store(true);
  signals->go_on.notify_all();
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const Case& one : cases) {
    for (const char* transport : {"stream", "shm"}) {
      for (const bool another : {false, true}) all.push_back({one, transport, another});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Awaitables, OutlivedLoop, ::testing::ValuesIn(parameters()), [](const auto& info) {
  return std::string(info.param.one.name) + "_" + info.param.transport + (info.param.another_loop ? "_replaced" : "");
});

}  // namespace hawser::outlived_loop
