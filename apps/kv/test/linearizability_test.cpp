#include "kv/test/linearizability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/testing.h"
#include "kv/client_access.h"
#include "kv/index_publication.h"
#include "kv/one_sided_reader.h"
#include "kv/service.h"
#include "kv/store.h"

// Histories of several clients, by seed: HAWSER_TEST_SEEDS=1000000 runs a million.
namespace hawser::kv {
namespace {

using Kind = Operation::Kind;

bool check(const std::vector<Operation>& history) { return LinearizabilityCheck(history).linearizable(); }

TEST(LinearizabilityCheck, AcceptsAndRefusesSmallHistories) {
  const Operation set1{.kind = Kind::set, .begin = 0, .end = 10, .value = "1", .version = 1};
  const Operation set2{.kind = Kind::set, .begin = 5, .end = 15, .value = "2", .version = 2};
  const auto get = [](std::int64_t begin, std::int64_t end, std::string value, std::uint64_t version) {
    return Operation{.kind = Kind::get, .begin = begin, .end = end, .value = std::move(value), .version = version};
  };
  EXPECT_TRUE(check({set1, set2, get(6, 7, "1", 1), get(8, 9, "2", 2)}));
  EXPECT_TRUE(check({set1, set2, get(6, 7, "2", 2), get(8, 9, "1", 1)}));
  EXPECT_FALSE(check({set1, set2, get(6, 7, "2", 2), get(8, 9, "1", 1), get(16, 17, "2", 2)}));
  EXPECT_FALSE(check({set1, get(11, 12, "2", 2)})) << "nobody has written it";
  EXPECT_FALSE(check({set1, {.kind = Kind::get, .begin = 11, .end = 12, .done = false}})) << "it exists";
  EXPECT_FALSE(check({set1, get(11, 12, "1", 3)})) << "another version";
  const Operation unknown{.kind = Kind::set, .begin = 11, .value = "3"};
  EXPECT_TRUE(check({set1, unknown, get(20, 21, "1", 1), get(30, 31, "3", 9)}));
  EXPECT_FALSE(check({set1, unknown, get(20, 21, "3", 9), get(30, 31, "1", 1)}));
  EXPECT_FALSE(check({set1, unknown, get(20, 21, "3", 9), get(30, 31, "3", 10)})) << "the version has changed";
  const Operation sum2{.kind = Kind::increment, .begin = 16, .end = 17, .number = 2};
  EXPECT_TRUE(check({set1, sum2}));
  EXPECT_FALSE(check({set1, sum2, sum2})) << "a lost increment";
  const Operation cas{.kind = Kind::compare_and_set, .begin = 16, .end = 17, .value = "4", .version = 4, .expected = 1};
  EXPECT_TRUE(check({set1, cas, get(18, 19, "4", 4)}));
  EXPECT_FALSE(check({set1, cas, cas})) << "the second must be refused";
  EXPECT_FALSE(check({set1, {.kind = Kind::remove, .begin = 11, .end = 12}, cas}));
  // As many operations as a history may have, of which the last is right or wrong.
  std::vector<Operation> sums;
  for (std::int64_t i = 1; i < static_cast<std::int64_t>(LinearizabilityCheck::operations_max); ++i) {
    sums.push_back({.kind = Kind::increment, .begin = 10 * i, .end = 10 * i + 15, .number = i});
  }
  sums.push_back({.kind = Kind::increment, .begin = 10'000, .end = 10'001, .number = sums.back().number + 1});
  EXPECT_TRUE(check(sums));
  --sums.back().number;
  EXPECT_FALSE(check(sums));
}

// The store of a server that may crash, and what readers of its memory see of it.
struct World {
  explicit World(testing::Simulation& used) : simulation(used) {}

  testing::Simulation& simulation;
  std::shared_ptr<Store> store;  // The store of the running process; null after a crash.
  std::map<std::string, std::vector<Operation>> histories;
  std::uint64_t values = 0;
  std::uint64_t found = 0;
  std::uint64_t torn_possible = 0;
  bool verify_crc = true;

  std::int64_t now() const { return simulation.elapsed().count(); }
};

struct Process {
  Process(std::shared_ptr<World> used, Server& server) : keeps(std::move(used)), world(*keeps) {
    world.store = std::make_shared<Store>(StoreOptions{.memory_bytes = 2 << 20,
                                                       .index_bytes_max = 256 << 10,
                                                       .index_buckets_first = 2,
                                                       .clock = [this] { return 1 + world.now() / 1'000'000; },
                                                       .secret = {1, 2}});
    service = std::make_unique<Service>(*world.store);
    register_service(server, *service);
    Loop* const loop = &world.simulation.loop();
    world.store->bind(std::span(&loop, 1));
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { world.store = nullptr; }

  const std::shared_ptr<World> keeps;  // The simulation ends the process after the test's body.
  World& world;
  std::unique_ptr<Service> service;
};

// Reads memory as a device does: each line of 64 bytes at its own time, in any order.
Task<Result<void>> read_lines(World& world, RemoteRegion region, std::uint64_t offset, MutableBytes into) {
  constexpr std::size_t line = 64;
  std::vector<std::size_t> lines;
  for (std::size_t at = 0; at < into.size(); at += line) lines.push_back(at);
  if (world.simulation.chance(0.7)) {
    for (std::size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[world.simulation.below(i)]);
  }
  for (const std::size_t at : lines) {
    // Most pauses are at lines of one entry, so that a write often comes between.
    if (world.simulation.chance(0.15)) {
      const Duration pause = world.simulation.between(std::chrono::microseconds(1), std::chrono::microseconds(400));
      co_await world.simulation.loop().sleep(pause);
    }
    Bytes memory;
    if (world.store != nullptr && world.store->site(0).index_publication() != nullptr) {
      memory = world.store->site(0).index_publication()->memory_of(region);
    }
    if (memory.empty()) co_return fail(ErrorCode::stale_handle, "the region is not exposed any more");
    const Bytes source = memory.subspan(offset + at, std::min(line, into.size() - at));
    std::memcpy(into.data() + at, source.data(), source.size());
  }
  co_return Result<void>();
}

struct Actor {
  World& world;
  Client client;
  OneSidedReader reader;
  KvClient store = KvClientAccess::with(client, reader);
  std::map<std::string, std::uint64_t> versions = {};  // Versions that it has seen.

  explicit Actor(World& used)
      : world(used),
        reader(client, {.by = ReadBy::memory,
                        .calls_every = 0,
                        .read_memory = [&used](RemoteRegion region, std::uint64_t offset,
                                               MutableBytes into) { return read_lines(used, region, offset, into); },
                        .verify_crc = used.verify_crc}) {}

  // A value that no other operation writes. Its first and last bytes differ between values.
  std::string new_value(bool number) {
    const std::uint64_t id = ++world.values;
    if (number) return std::to_string(id * 1000);
    constexpr std::array<std::size_t, 5> sizes{8, 70, 88, 200, 1000};
    std::string value;
    const std::size_t size = sizes[world.simulation.below(sizes.size())];
    while (value.size() < size) value += std::to_string(id) + ",";
    return value;
  }

  Task<void> connect() {
    while (!client.connected()) {
      const Result<void> connected = co_await client.connect("store:1");
      if (connected) co_return;
      co_await world.simulation.loop().sleep(std::chrono::microseconds(200));
    }
  }

  Task<void> operate() {
    co_await connect();
    const bool number = world.simulation.chance(0.3);
    const std::string key = (number ? "n" : "t") + std::to_string(world.simulation.below(3));
    Operation operation{.begin = world.now()};
    const std::uint64_t choice = world.simulation.below(20);
    std::optional<Error> error;
    if (choice < 10) {
      operation.kind = Kind::get;
      Result<std::optional<Value>> value = co_await store.get(key);
      if (!value) co_return;  // It has no effect.
      operation.done = value->has_value();
      if (*value) {
        operation.value = (*value)->bytes;
        operation.version = versions[key] = (*value)->version;
      }
    } else if (choice < 15 || (choice < 17 && !number)) {
      operation.kind = Kind::set;
      operation.value = new_value(number);
      const Result<std::uint64_t> version = co_await store.set(key, operation.value);
      version ? void(operation.version = versions[key] = *version) : void(error = version.error());
    } else if (choice < 17) {
      operation.kind = Kind::increment;
      const Result<std::int64_t> sum = co_await store.increment(key, 1);
      sum ? void(operation.number = *sum) : void(error = sum.error());
    } else if (choice < 18) {
      operation.kind = Kind::remove;
      const Result<bool> removed = co_await store.remove(key);
      removed ? void(operation.done = *removed) : void(error = removed.error());
    } else {
      operation.kind = Kind::compare_and_set;
      operation.value = new_value(number);
      operation.expected = versions[key];
      const Result<std::optional<std::uint64_t>> version =
          co_await store.compare_and_set(key, operation.expected, operation.value);
      if (!version) {
        error = version.error();
      } else {
        operation.done = version->has_value();
        if (*version) operation.version = versions[key] = **version;
      }
    }
    if (error && error->not_executed()) co_return;
    if (!error) operation.end = world.now();
    world.histories[key].push_back(std::move(operation));
  }

  Task<void> run(int operations) {
    for (int i = 0; i < operations; ++i) {
      co_await operate();
      if (world.simulation.chance(0.3)) {
        const Duration pause = world.simulation.between(std::chrono::microseconds(1), std::chrono::microseconds(500));
        co_await world.simulation.loop().sleep(pause);
      }
    }
    world.found += reader.counters().found;
    world.torn_possible += reader.counters().absent;
  }
};

// Lets the index grow: other keys come and go.
Task<void> fill(World& world, Actor& actor, int keys) {
  for (int i = 0; i < keys; ++i) {
    co_await actor.connect();
    const std::string key = "filler" + std::to_string(i);
    const auto written = co_await actor.store.set(key, std::string(world.simulation.below(300), 'f'));
    static_cast<void>(written);
  }
}

Task<void> maintain(World& world, const bool& ended) {
  while (!ended) {
    co_await world.simulation.loop().sleep(std::chrono::milliseconds(1));
    if (world.store == nullptr) continue;
    IndexPublication* const publication = world.store->site(0).index_publication();
    if (publication != nullptr) publication->maintain(world.store->clock());
  }
}

struct Totals {
  std::uint64_t found = 0;
  std::uint64_t absent = 0;
  std::uint64_t unknown = 0;
  std::uint64_t crashes = 0;
  std::uint64_t checked = 0;  // Histories of one key.
  std::size_t longest = 0;    // The number of operations of one.
};

Task<void> run_history(testing::Simulation& simulation, bool verify_crc, Totals& totals) {
  const std::shared_ptr<World> shared = std::make_shared<World>(simulation);
  World& world = *shared;
  world.verify_crc = verify_crc;
  testing::SimServer& server =
      simulation.serve("store:1", [shared](Server& made) { return std::make_unique<Process>(shared, made); });
  std::vector<std::unique_ptr<Actor>> actors;
  for (int i = 0; i < 4; ++i) actors.push_back(std::make_unique<Actor>(world));
  Actor filler(world);
  bool ended = false;
  Scope background;
  background.spawn(maintain(world, ended));
  Scope scope;
  for (const std::unique_ptr<Actor>& actor : actors) scope.spawn(actor->run(25));
  if (simulation.chance(0.6)) scope.spawn(fill(world, filler, 40));
  if (simulation.chance(0.3)) {
    const Duration until = simulation.between(std::chrono::milliseconds(1), std::chrono::milliseconds(10));
    co_await simulation.loop().sleep(until);
    server.crash();
    ++totals.crashes;
    // Nothing survives.
    for (const char* const kind : {"n", "t"}) {
      for (int i = 0; i < 3; ++i) {
        world.histories[kind + std::to_string(i)].push_back(
            {.kind = Kind::clear, .begin = world.now(), .end = world.now()});
      }
    }
    // Versions begin with the milliseconds of the clock.
    co_await simulation.loop().sleep(std::chrono::milliseconds(2));
    server.restart();
  }
  co_await scope.join();
  ended = true;
  co_await background.join();
  for (const auto& [key, history] : world.histories) {
    totals.longest = std::max(totals.longest, history.size());
    simulation.expect(history.size() <= LinearizabilityCheck::operations_max,
                      "the history of the key " + key + " has " + std::to_string(history.size()) +
                          " operations and cannot be checked: raise LinearizabilityCheck::operations_max");
    if (history.size() > LinearizabilityCheck::operations_max) continue;
    ++totals.checked;
    simulation.expect(check(history), "the history of the key " + key + " is not linearizable");
  }
  totals.found += world.found;
  totals.absent += world.torn_possible;
}

testing::SeedOptions seeds(std::string name, std::uint64_t count) {
  testing::SeedOptions options{.name = std::move(name), .count = count};
  options.simulation.network.delay_max = std::chrono::microseconds(300);
  options.simulation.network.reset = 0.1;
  return options;
}

TEST(Linearizability, HistoriesWithReadsWithoutCalls) {
  Totals totals;
  const testing::SeedOutcome outcome = testing::for_each_seed(
      seeds("kv_histories", 300),
      [&totals](testing::Simulation& simulation) { return run_history(simulation, true, totals); });
  EXPECT_TRUE(outcome);
  ::testing::Test::RecordProperty("checked", std::to_string(totals.checked));
  ::testing::Test::RecordProperty("longest", std::to_string(totals.longest));
  // The seeds have found entries without calls, have missed others, and have crashed.
  if (outcome.seeds >= 100) {
    EXPECT_GT(totals.found, outcome.seeds);
    EXPECT_GT(totals.absent, outcome.seeds / 10);
    EXPECT_GT(totals.crashes, outcome.seeds / 10);
  }
}

TEST(Linearizability, ChecksumsAreNeeded) {
  Totals totals;
  testing::SeedOptions options = seeds("kv_histories_without_crc", 3000);
  options.report = [](std::string_view) {};
  const testing::SeedOutcome outcome = testing::for_each_seed(
      options, [&totals](testing::Simulation& simulation) { return run_history(simulation, false, totals); });
  if (outcome.seeds >= 100 || outcome.failed_seed) {
    EXPECT_FALSE(outcome) << "no torn entry was noticed";
  }
}

}  // namespace
}  // namespace hawser::kv
