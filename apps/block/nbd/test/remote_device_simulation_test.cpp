// Devices of several clients over a simulated network, while connections break and their server is killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block/nbd/remote_exports.h"
#include "block/service.h"
#include "block/store/store.h"
#include "block/test/block_history.h"
#include "hawser/hawser.h"
#include "hawser/interceptor.h"
#include "hawser/testing.h"

namespace hawser::block::nbd {
namespace {

TEST(BlockHistory, AcceptsAndRefusesSmallHistories) {
  const auto holds = [](std::vector<BlockAccess> accesses) { return BlockHistory(std::move(accesses)).linearizable(); };
  const BlockAccess first{.begin = 0, .end = 50, .value = 1, .write = true};
  const BlockAccess second{.begin = 20, .end = 30, .value = 2, .write = true};
  EXPECT_TRUE(holds({first, {.begin = 5, .end = 6, .value = 0}, {.begin = 51, .end = 52, .value = 1}}));
  EXPECT_FALSE(holds({first, {.begin = 51, .end = 52, .value = 0}})) << "the write is lost";
  EXPECT_FALSE(holds({first, {.begin = 51, .end = 52, .value = 3}})) << "nobody has written it";
  EXPECT_FALSE(holds({first, {.begin = 5, .end = 6, .value = 1}, {.begin = 7, .end = 8, .value = 0}}));
  // The first write is repeated after the second one.
  EXPECT_TRUE(holds({first, second, {.begin = 5, .end = 6, .value = 1}, {.begin = 60, .end = 70, .value = 1}}));
  const BlockAccess third{.begin = 55, .end = 58, .value = 3, .write = true};
  EXPECT_FALSE(holds({first, second, third, {.begin = 60, .end = 70, .value = 1}})) << "it was repeated after its end";
  EXPECT_TRUE(
      holds({first, second, third, {.begin = 56, .end = 57, .value = 2}, {.begin = 60, .end = 70, .value = 3}}));
}

constexpr std::uint64_t simulated_blocks = 4;
constexpr unsigned simulated_clients = 2;
constexpr unsigned tasks_of_simulated_client = 3;
constexpr unsigned requests_of_simulated_task = 12;

struct BlockWorld {
  explicit BlockWorld(testing::Simulation& used)
      : simulation(used),
        store(std::move(*VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{16} << 20), {}))) {}

  testing::Simulation& simulation;
  const std::unique_ptr<VolumeStore> store;  // As the kernel does, it has what a killed server has written.
  std::map<std::uint64_t, std::vector<BlockAccess>> histories = {};
  std::uint64_t values = 0;
  unsigned working = simulated_clients * tasks_of_simulated_client;

  std::int64_t now() const { return simulation.elapsed().count(); }
};

// Its requests wait for different times, so that those of an earlier connection may begin after those of a later one.
// The server does not know that a silent connection has ended for its client, and executes them.
std::unique_ptr<VolumeService> serve_late(BlockWorld& world, Server& server) {
  // Servers execute requests of up to so many blocks on the thread of the connection.
  const std::size_t direct_bytes_max = world.simulation.below(simulated_blocks + 1) * block_bytes;
  auto service = std::make_unique<VolumeService>(*world.store, memory_in_flight_usual, VolumeRules(), direct_bytes_max);
  service->attach(server);
  server.use([&world](IncomingCall&, Next next) -> Task<Result<void>> {
    if (world.simulation.chance(0.3))
      co_await Loop::current()->sleep(world.simulation.between({}, std::chrono::milliseconds(400)));
    co_return co_await next();
  });
  return service;
}

Task<void> use_device(BlockWorld& world, std::shared_ptr<NbdDevice> device) {
  testing::Simulation& simulation = world.simulation;
  for (unsigned i = 0; i < requests_of_simulated_task; ++i) {
    const std::uint64_t first = simulation.below(simulated_blocks);
    const std::uint64_t count = 1 + simulation.below(simulated_blocks - first);
    const bool write = simulation.chance(0.5);
    std::vector<std::byte> bytes(count * block_bytes);
    std::vector<std::uint64_t> found(count);
    for (std::uint64_t block = 0; block < count && write; ++block) {
      found[block] = ++world.values;
      std::memcpy(bytes.data() + block * block_bytes, &found[block], sizeof(found[block]));
    }
    const std::int64_t begin = world.now();
    const std::uint64_t offset = first * block_bytes;
    const Result<void> done =
        write ? co_await device->write(offset, bytes, simulation.chance(0.1)) : co_await device->read(offset, bytes);
    simulation.require(done.has_value(), done ? "" : done.error().text);
    for (std::uint64_t block = 0; block < count; ++block) {
      if (!write) std::memcpy(&found[block], bytes.data() + block * block_bytes, sizeof(found[block]));
      world.histories[first + block].push_back({begin, world.now(), found[block], write});
    }
    if (simulation.chance(0.1)) simulation.expect((co_await device->flush()).has_value(), "a flush failed");
    co_await simulation.loop().sleep(simulation.between({}, std::chrono::milliseconds(100)));
  }
  --world.working;
}

Task<void> break_connections(BlockWorld& world, testing::SimServer& server) {
  testing::Simulation& simulation = world.simulation;
  while (world.working > 0) {
    co_await simulation.loop().sleep(simulation.between({}, std::chrono::milliseconds(300)));
    switch (simulation.below(4)) {
      case 0:
        server.crash();
        co_await simulation.loop().sleep(simulation.between({}, std::chrono::milliseconds(500)));
        server.restart();
        break;
      case 1:
        co_await server.shut_down(simulation.between({}, std::chrono::milliseconds(200)));
        server.restart();
        break;
      case 2: simulation.reset_connections("client0"); break;
      default: simulation.reset_connections();
    }
  }
}

Task<void> run_devices(testing::Simulation& simulation) {
  BlockWorld world(simulation);
  simulation.require(world.store->create("v", simulated_blocks * block_bytes, false).has_value(), "no volume");
  testing::SimServer& server = simulation.serve("server:7750", [&world](Server& on) { return serve_late(world, on); });
  {
    std::vector<std::unique_ptr<RemoteExports>> exports;
    Scope tasks;
    for (unsigned client = 0; client < simulated_clients; ++client) {
      exports.push_back(
          std::make_unique<RemoteExports>(simulation.loop(), "server:7750",
                                          ClientOptions{.ping_interval = std::chrono::milliseconds(20),
                                                        .runtime = simulation.host("client" + std::to_string(client))},
                                          VolumeRules(), std::chrono::hours(1)));
      const Result<std::shared_ptr<NbdDevice>> device = co_await exports.back()->open("v", {});
      simulation.require(device.has_value(), "the volume cannot be opened");
      for (unsigned task = 0; task < tasks_of_simulated_client; ++task) tasks.spawn(use_device(world, *device));
    }
    co_await break_connections(world, server);
    co_await tasks.join();
  }
  for (auto& [block, accesses] : world.histories) {
    simulation.expect(BlockHistory(std::move(accesses)).linearizable(),
                      "block " + std::to_string(block) + " has no order of its accesses");
  }
  co_await server.shut_down({});
}

// Why a write is not repeated that the server has received and does not execute for long.
enum class LateWrite { given_up, given_up_by_another_client, abandoned };

Task<Result<void>> write_block(NbdDevice& device, std::byte value) {
  const std::vector<std::byte> bytes(block_bytes, value);
  co_return co_await device.write(0, bytes, false);
}

Task<void> write_before_a_late_one(testing::Simulation& simulation, LateWrite how) {
  BlockWorld world(simulation);
  simulation.require(world.store->create("v", block_bytes, false).has_value(), "no volume");
  constexpr Duration moment = std::chrono::milliseconds(1);
  bool held = true;
  unsigned writes = 0;
  testing::SimServer& server = simulation.serve("server:7750", [&](Server& on) {
    auto service = std::make_unique<VolumeService>(*world.store);
    service->attach(on);
    on.use([&](IncomingCall& call, Next next) -> Task<Result<void>> {
      if (call.method().ends_with("write") && writes++ == 0) {
        while (held) co_await Loop::current()->sleep(moment);
      }
      co_return co_await next();
    });
    return service;
  });
  {
    RemoteExports exports(simulation.loop(), "server:7750", ClientOptions{.ping_interval = std::chrono::seconds(1)},
                          VolumeRules(), Duration{});
    // The first connection falls silent. Its server does not notice it.
    if (how != LateWrite::abandoned) simulation.set_network({.vanish = 1, .fault_bytes_max = 1 << 16});
    Result<std::shared_ptr<NbdDevice>> first = co_await exports.open("v", {});
    // A connection may fall silent before the volume has been opened.
    while (!first && how != LateWrite::abandoned) first = co_await exports.open("v", {});
    simulation.require(first.has_value(), "the volume cannot be opened");
    simulation.set_network({});
    bool ended = false;
    Scope tasks;
    tasks.spawn([](testing::Simulation& in, NbdDevice& device, bool& end) -> Task<void> {
      in.expect(!(co_await write_block(device, std::byte{1})).has_value(), "the late write has succeeded");
      end = true;
    }(simulation, **first, ended));
    while (writes == 0 && !ended) co_await simulation.loop().sleep(moment);
    if (writes == 0) {  // The connection fell silent before the server had the write.
      held = false;
      co_return co_await server.shut_down({});
    }
    std::vector<std::byte> found(block_bytes);
    if (how == LateWrite::abandoned) {
      (*first)->abandon();
    } else {
      while ((co_await (*first)->read(0, found)).has_value()) {
      }
      co_await tasks.join();
    }
    const Result<std::shared_ptr<NbdDevice>> second = co_await exports.open("v", {});
    simulation.require(second.has_value(), "the volume cannot be opened again");
    NbdDevice& used = how == LateWrite::given_up ? **first : **second;
    simulation.expect((co_await write_block(used, std::byte{2})).has_value(), "the second write has failed");
    held = false;
    co_await tasks.join();
    co_await simulation.loop().sleep(std::chrono::seconds(1));
    simulation.expect((co_await used.read(0, found)).has_value(), "the read has failed");
    simulation.expect(found[0] == std::byte{2}, "the late write has replaced one that was acknowledged");
  }
  co_await server.shut_down({});
}

TEST(NbdRemoteDevice, AWriteThatIsNotRepeatedReplacesNoLaterOne) {
  for (const LateWrite how : {LateWrite::given_up, LateWrite::given_up_by_another_client, LateWrite::abandoned}) {
    SCOPED_TRACE(static_cast<int>(how));
    const testing::SeedOutcome outcome = testing::for_each_seed(
        {.name = "late_write", .count = 1, .failed = [] { return ::testing::Test::HasFailure(); }},
        [how](testing::Simulation& simulation) { return write_before_a_late_one(simulation, how); });
    EXPECT_TRUE(outcome) << outcome.report;
  }
}

// A run depends on its seed, except for the random ids of volumes and openings, which have one length.
TEST(NbdRemoteDevice, RequestsAreLinearizableAndNoneFailsWhileConnectionsBreak) {
  const testing::SeedOptions options{.name = "remote_device",
                                     .count = 100,
                                     .simulation = {.network = {.reset = 0.2,
                                                                .vanish = 0.6,
                                                                .fault_bytes_max = 200'000,
                                                                .fault_after_max = std::chrono::seconds(1)}},
                                     .failed = [] { return ::testing::Test::HasFailure(); }};
  const testing::SeedOutcome outcome = testing::for_each_seed(options, run_devices);
  EXPECT_TRUE(outcome) << outcome.report;
}

}  // namespace
}  // namespace hawser::block::nbd
