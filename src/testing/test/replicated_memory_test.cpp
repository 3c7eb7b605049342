#include "hawser/replicated_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hawser/client.h"
#include "hawser/scope.h"
#include "hawser/testing.h"

namespace hawser {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

// The memory of a server, which gives its handle. Its bytes are the first letter of its host.
struct ReplicaOwner {
  RegisteredBuffer buffer;
  ExposedRegion region;
  RemoteRegion give() { return region.handle(); }
};

constexpr std::size_t replica_bytes = 100'000;
constexpr std::array<const char*, 3> replica_hosts = {"a", "b", "c"};

void serve_replicas(Simulation& simulation) {
  for (const char* const host : replica_hosts) {
    simulation.serve(std::string(host) + ":1", [host](Server& server) {
      auto owner = std::make_unique<ReplicaOwner>();
      owner->buffer = std::move(*RegisteredBuffer::allocate(server, replica_bytes));
      std::memset(owner->buffer.memory().data(), *host, replica_bytes);
      owner->region = std::move(*owner->buffer.expose(0, replica_bytes, RegionAccess::read));
      server.register_handler<&ReplicaOwner::give>(owner.get());
      return owner;
    });
  }
}

// Clients of the three servers.
struct ReplicaClients {
  Task<std::vector<MemoryReplica>> connect() {
    std::vector<MemoryReplica> replicas;
    for (const char* const host : replica_hosts) {
      clients.push_back(std::make_unique<Client>());
      EXPECT_TRUE(co_await clients.back()->connect(std::string(host) + ":1"));
      const Result<RemoteRegion> region = co_await clients.back()->call<&ReplicaOwner::give>();
      EXPECT_TRUE(region);
      if (region) replicas.push_back({clients.back().get(), *region});
    }
    co_return replicas;
  }
  std::vector<std::unique_ptr<Client>> clients;
};

// Reads each 2 ms, and returns the latencies in order. All succeed, and none is a mixture.
Task<std::vector<Duration>> read_for(Simulation& simulation, const ReplicatedMemory& memory, int reads) {
  std::vector<Duration> latencies;
  Scope running;
  for (int i = 0; i < reads; ++i) {
    running.spawn([](Simulation& on, ReplicatedMemory from, std::vector<Duration>& all) -> Task<void> {
      std::vector<std::byte> into(2000);
      const Time began = on.loop().now();
      const Result<void> read = co_await from.read(50, into, {.timeout = seconds(10)});
      EXPECT_TRUE(read) << read.error().text;
      EXPECT_TRUE(std::ranges::all_of(into, [&](std::byte one) { return one == into[0]; }));
      all.push_back(on.loop().now() - began);
    }(simulation, memory, latencies));
    co_await simulation.loop().sleep(milliseconds(2));
  }
  co_await running.join();
  std::ranges::sort(latencies);
  co_return latencies;
}

TEST(ReplicatedMemory, AGrayReplicaDoesNotMakeReadsSlow) {
  Simulation simulation(1);
  serve_replicas(simulation);
  simulation.run([](Simulation& on) -> Task<void> {
    ReplicaClients clients;
    const std::vector<MemoryReplica> replicas = co_await clients.connect();
    auto memory = ReplicatedMemory::create(replicas);
    EXPECT_TRUE(memory);
    if (!memory) co_return;
    const std::vector<Duration> healthy = co_await read_for(on, *memory, 2000);
    EXPECT_LE(memory->counts().copies, 200U + 10U) << "a copy for ten reads, and the saved ones";
    on.partition_one_way("a", "client");  // It receives requests, and nothing that it sends arrives.
    const std::vector<Duration> gray = co_await read_for(on, *memory, 2000);
    EXPECT_LE(gray[gray.size() * 99 / 100], healthy[healthy.size() * 99 / 100] * 3 / 2);
    EXPECT_LE(gray.back(), milliseconds(20));
    const auto us = [](Duration time) { return std::to_string(time / microseconds(1)); };
    ::testing::Test::RecordProperty("healthy p99 us", us(healthy[healthy.size() * 99 / 100]));
    ::testing::Test::RecordProperty("gray p99 us", us(gray[gray.size() * 99 / 100]));
    ::testing::Test::RecordProperty("gray worst us", us(gray.back()));
    ::testing::Test::RecordProperty("copies", std::to_string(memory->counts().copies));
    EXPECT_LE(memory->counts().copies, 400U + 10U);
    EXPECT_EQ(memory->counts().reads, 4000U);
    on.end_partitions();
    co_await on.loop().sleep(seconds(11));
    const std::vector<Duration> after = co_await read_for(on, *memory, 500);
    EXPECT_LE(after[after.size() * 99 / 100], healthy[healthy.size() * 99 / 100] * 3 / 2);
  }(simulation));
}

TEST(ReplicatedMemory, TheLoserDoesNotWriteIntoTheCallersMemory) {
  Simulation simulation(1);
  serve_replicas(simulation);
  simulation.run([](Simulation& on) -> Task<void> {
    ReplicaClients clients;
    const std::vector<MemoryReplica> replicas = co_await clients.connect();
    auto memory = ReplicatedMemory::create(replicas, {.attempts_max = 3, .delay = milliseconds(1), .budget = 1});
    EXPECT_TRUE(memory);
    if (!memory) co_return;
    for (int i = 0; i < 30; ++i) {
      on.partition_one_way(replica_hosts.at(static_cast<std::size_t>(i % 3)), "client");
      std::vector<std::byte> into(replica_bytes);
      EXPECT_TRUE(co_await memory->read(0, into, {.timeout = seconds(1)}));
      const std::vector<std::byte> read = into;
      on.end_partitions();  // The bytes of the replica that was silent arrive now.
      co_await on.loop().sleep(milliseconds(50));
      EXPECT_EQ(into, read);
      EXPECT_TRUE(std::ranges::all_of(into, [&](std::byte one) { return one == into[0]; }));
    }
    EXPECT_GE(memory->counts().copies_used, 1U);
  }(simulation));
}

TEST(ReplicatedMemory, EndsWithTheTimeoutOfTheWholeRead) {
  Simulation simulation(1);
  serve_replicas(simulation);
  simulation.run([](Simulation& on) -> Task<void> {
    ReplicaClients clients;
    const std::vector<MemoryReplica> replicas = co_await clients.connect();
    auto memory = ReplicatedMemory::create(replicas, {.attempts_max = 2, .delay = milliseconds(10)});
    EXPECT_TRUE(memory);
    if (!memory) co_return;
    on.partition_one_way("", "client");
    std::vector<std::byte> into(10, std::byte{1});
    const Time began = on.loop().now();
    const Result<void> late = co_await memory->read(0, into, {.timeout = milliseconds(100)});
    EXPECT_FALSE(late);
    if (!late) EXPECT_EQ(late.error().code, ErrorCode::deadline_exceeded);
    EXPECT_LE(on.loop().now() - began, milliseconds(101));
    std::stop_source stop;
    const std::stop_token token = stop.get_token();
    Scope stopping;
    stopping.spawn([](Simulation& at, std::stop_source source) -> Task<void> {
      co_await at.loop().sleep(milliseconds(5));
      source.request_stop();
    }(on, stop));
    const Result<void> stopped = co_await memory->read(0, into, {.token = &token});
    EXPECT_FALSE(stopped);
    if (!stopped) EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
    EXPECT_EQ(into, std::vector<std::byte>(10, std::byte{1}));
    on.end_partitions();
  }(simulation));
}

TEST(ReplicatedMemory, ChecksItsReplicas) {
  Simulation simulation(1);
  serve_replicas(simulation);
  simulation.run([](Simulation&) -> Task<void> {
    ReplicaClients clients;
    std::vector<MemoryReplica> replicas = co_await clients.connect();
    const auto why = [](const std::vector<MemoryReplica>& given, const HedgeOptions& hedging = {}) {
      const auto made = ReplicatedMemory::create(given, hedging);
      return made ? std::string("it is accepted") : made.error().text;
    };
    EXPECT_EQ(why(replicas), "it is accepted");
    EXPECT_EQ(why({}), "a ReplicatedMemory has 0 replicas: it needs at least one");
    EXPECT_EQ(why(replicas, {.attempts_max = 0}), "hedging.attempts_max must be from 1 to 5");
    replicas[1].region.bytes = 5;
    EXPECT_EQ(why(replicas),
              "the regions of a ReplicatedMemory have 100000 and 5 bytes: expose as many bytes at each peer");
    replicas[0].client = nullptr;
    EXPECT_EQ(why(replicas), "the client of a MemoryReplica is null");
  }(simulation));
}

}  // namespace
}  // namespace hawser
