#include "tests/simulation/world.h"

#include <exception>
#include <list>
#include <string>
#include <utility>

#include "tests/simulation/client_actor.h"
#include "transport/network_access.h"

namespace hawser::simulation {
namespace {

constexpr Duration run_max = std::chrono::hours(2);

LoopOptions quiet() {
  LoopOptions options;
  options.log = no_log();
  return options;
}

std::unique_ptr<RestPoller> make_poller(std::uint64_t seed, RestPoller*& kept) {
  auto poller = std::make_unique<RestPoller>(seed);
  kept = poller.get();
  return poller;
}

void check_stopped(World& world, const Server& server) {
  const ServerCounters counters = server.counters();
  world.checker.expect(counters.connections_open == 0, "a stopped server has connections");
  world.checker.expect(counters.calls_in_flight == 0, "a stopped server has calls in flight");
  world.checker.expect(counters.protocol_errors == 0, "a server saw a protocol error");
}

// Stops within the grace and the time in which cancelled calls end; at once if all clients have gone and the network
// has no faults.
Task<void> stop(World& world, Server& server) {
  const Duration grace = world.up_to(std::chrono::milliseconds(300));
  const Profile& profile = world.plan.profile;
  // While clients live, requests in the network's buffers may precede their answers to GOAWAY.
  const bool idle = world.actors == 0 && !profile.faults && !profile.slow && !profile.transports;
  const Time begin = world.loop.now();
  co_await server.shut_down(grace);
  const Duration taken = world.loop.now() - begin;
  world.checker.expect(taken <= 2 * grace + std::chrono::milliseconds(10), "a shutdown took longer than its grace");
  // The ends of the streams are on their way.
  const Duration at_once = 8 * world.plan.network.delay_max + std::chrono::milliseconds(20);
  const auto in_us = [](Duration time) { return std::to_string(time / std::chrono::microseconds(1)) + " us"; };
  world.checker.expect(!idle || taken <= at_once, "an idle server shut down after " + in_us(taken) + " instead of " +
                                                      in_us(at_once) + ", with a grace of " + in_us(grace));
  check_stopped(world, server);
}

// Runs one server after the other at the same address. The last one runs until all actors are done.
Task<void> serve(World& world) {
  for (unsigned life = 1;; ++life) {
    const bool last = life == world.plan.servers;
    auto server = std::make_unique<Server>(world.loop, over(world.network, world.plan.server));
    register_service(*server, world.service);
    Result<void> started = server->start();
    world.checker.expect(started.has_value(), "a server could not start");
    if (!last) {
      co_await world.pause(std::chrono::milliseconds(400));
    }
    while (last && world.actors != 0) {
      co_await world.loop.sleep(std::chrono::milliseconds(10));
    }
    world.checker.expect(server->counters().protocol_errors == 0, "a server saw a protocol error");
    if (last || world.random.chance(0.7)) {
      co_await stop(world, *server);
    }
    server.reset();
    if (last) co_return;
    co_await world.pause(std::chrono::milliseconds(100));
  }
}

template <class Actor>
Task<void> act(World& world) {
  Actor actor(world);
  co_await actor.run();
  --world.actors;
}

Task<void> everything(World& world) {
  Scope scope;
  world.actors = world.plan.clients + world.plan.pools;
  scope.spawn(serve(world));
  for (unsigned i = 0; i < world.plan.clients; ++i) scope.spawn(act<ClientActor>(world));
  for (unsigned i = 0; i < world.plan.pools; ++i) scope.spawn(act<PoolActor>(world));
  const Time end = world.loop.now() + run_max;
  while (!scope.empty() && world.loop.now() < end) {
    co_await world.loop.sleep(std::chrono::milliseconds(50));
  }
  world.checker.expect(scope.empty(), "something waits for ever");
  if (!scope.empty()) world.checker.report_open();
}

Task<void> never() { co_await std::suspend_always(); }

// Checks that no timer and no message is left.
void check_rest(World& world) {
  world.poller->wait_for_rest(std::chrono::minutes(10));
  try {
    world.loop.run(never());
  } catch (const RestPoller::AtRest&) {
  } catch (const RestPoller::StillAtWork&) {
    world.checker.expect(false, "timers run although everything has been stopped");
  }
  world.checker.expect(world.network->streams() == 0, "streams are left although everything has been stopped");
  world.checker.expect(world.loop.sources() == 0, "sources are left although everything has been stopped");
}

}  // namespace

World::World(const Profile& profile, std::uint64_t seed)
    : random(seed),
      plan(draw_plan(profile, random)),
      loop(make_poller(seed, poller), quiet()),
      network(std::make_shared<transport::SimNetwork>(random.next(), plan.network)),
      service(checker, random) {
  service.client_window = plan.client.stream_window_bytes;
}

Outcome simulate(const Profile& profile, std::uint64_t seed) {
  World world(profile, seed);
  try {
    world.loop.run(everything(world));
    check_rest(world);
  } catch (const std::exception& exception) {
    world.checker.expect(false, std::string("an exception: ") + exception.what());
  }
  world.checker.finish();
  return {.seed = seed,
          .trace = world.network->trace(),
          .events = world.network->events(),
          .time = world.loop.now().time_since_epoch(),
          .counts = world.checker.counts(),
          .violations = world.checker.violations()};
}

}  // namespace hawser::simulation
