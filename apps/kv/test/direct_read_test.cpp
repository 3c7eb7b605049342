#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "kv/client_access.h"
#include "kv/index_publication.h"
#include "kv/one_sided_reader.h"
#include "kv/test/resp_peer.h"
#include "transport/network.h"
#include "transport/network_access.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/sim/rdma/fabric_poller.h"
#include "transport/sim/rdma/sim_fabric.h"
#include "transport/sim/sim_network.h"

// The index that clients read without calls.
namespace hawser::kv {
namespace {

constexpr std::uint32_t test_generation = 7;

// An index in memory, and a reader that copies candidates.
struct LocalIndex {
  explicit LocalIndex(std::size_t buckets, std::size_t ring_bytes)
      : geometry{.buckets = buckets, .ring_bytes = ring_bytes},
        words(geometry.bytes() / 8),
        index(std::as_writable_bytes(std::span(words)), geometry, test_generation) {}

  static std::uint64_t hash(std::string_view key) { return hash_of({1, 2}, key); }
  void put(std::string_view key, std::string_view value) { index.put(key, hash(key), value, ++version); }
  // The cell of the key, if it is found.
  std::optional<std::string> get(std::string_view key) const {
    const Bytes memory = std::as_bytes(std::span(words));
    for (std::size_t i = 0; i < IndexGeometry::candidates; ++i) {
      const Bytes cell = memory.subspan(geometry.candidates_offset(hash(key)) + i * IndexGeometry::cell_bytes,
                                        IndexGeometry::cell_bytes);
      const auto found = parse_cell(cell, {.key = key, .hash = hash(key), .generation = test_generation});
      if (!found) continue;
      if (!found->outside) return std::string(found->value);
      const Bytes value = memory.subspan(found->outside->offset, found->value_bytes);
      if (crc32c(value) != found->outside->crc) return std::nullopt;
      return std::string(reinterpret_cast<const char*>(value.data()), value.size());
    }
    return std::nullopt;
  }

  IndexGeometry geometry;
  std::vector<std::uint64_t> words;
  RemoteIndex index;
  std::uint64_t version = 0;
};

TEST(RemoteIndex, NeverReturnsAnotherValue) {
  LocalIndex local(16, 8192);
  std::map<std::string, std::string> expected;
  std::mt19937 random(3);
  std::size_t found = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::string key = std::string(random() % 3, 'k') + std::to_string(random() % 60);
    if (random() % 8 == 0) {
      local.index.remove(key, LocalIndex::hash(key));
      expected.erase(key);
    } else if (random() % 2 == 0) {
      // Some do not fit into a cell, and some not into the ring.
      const std::string value(random() % (random() % 4 == 0 ? 1200 : 100), static_cast<char>('a' + random() % 26));
      local.put(key, value);
      expected[key] = value;
    }
    if (i % 9'999 == 0) {
      local.index.clear();
      EXPECT_EQ(local.index.size(), 0U);
    }
    const std::optional<std::string> value = local.get(key);
    if (!value) continue;
    ++found;
    ASSERT_TRUE(expected.contains(key));
    ASSERT_EQ(*value, expected[key]);
  }
  EXPECT_GT(found, 5'000U);
  EXPECT_LE(local.index.size(), local.geometry.cells());
}

// A reader sees each word of a cell before or after a change: every prefix, every suffix and every line.
TEST(RemoteIndex, TornCellsAreNotReturned) {
  constexpr std::size_t words = IndexGeometry::cell_bytes / 8;
  const std::string key = "key";
  const std::uint64_t hash = LocalIndex::hash(key);
  for (const std::size_t before_bytes : {0U, 8U, 60U, 93U}) {
    for (const std::size_t after_bytes : {0U, 8U, 60U, 93U}) {
      LocalIndex local(1, 4096);
      local.put(key, std::string(before_bytes, 'b'));
      const std::size_t cell =
          (IndexGeometry::header_bytes + IndexGeometry::first_candidate(hash) * IndexGeometry::cell_bytes) / 8;
      const std::vector<std::uint64_t> before(local.words.begin() + static_cast<std::ptrdiff_t>(cell),
                                              local.words.begin() + static_cast<std::ptrdiff_t>(cell + words));
      local.put(key, std::string(after_bytes, 'a'));
      for (std::size_t i = 1; i < words; ++i) {
        for (const bool first_new : {false, true}) {
          std::array<std::uint64_t, words> torn;
          for (std::size_t word = 0; word < words; ++word) {
            torn[word] = (word < i) == first_new ? local.words[cell + word] : before[word];
          }
          const auto found =
              parse_cell(std::as_bytes(std::span(torn)), {.key = key, .hash = hash, .generation = test_generation});
          if (!found) continue;
          // The bytes that were not read as one are equal, or behind the end of the value.
          const std::string value(found->value);
          ASSERT_TRUE(value == std::string(before_bytes, 'b') || value == std::string(after_bytes, 'a'));
          ASSERT_EQ(value[0] == 'b' ? 1U : 2U, value.empty() ? (value[0] == 'b' ? 1U : 2U) : found->version);
        }
      }
    }
  }
}

TEST(RemoteIndex, ForgedCellsAreHarmless) {
  std::mt19937_64 random(5);
  const std::string key = "key";
  const std::uint64_t hash = LocalIndex::hash(key);
  for (int i = 0; i < 200'000; ++i) {
    std::array<std::uint64_t, IndexGeometry::cell_bytes / 8> cell;
    for (std::uint64_t& word : cell) word = random();
    CellHead head{.crc = 0,
                  .generation = test_generation,
                  .hash = hash,
                  .version = random(),
                  .value_bytes = static_cast<std::uint32_t>(random() >> (random() % 64)),
                  .key_bytes = static_cast<std::uint16_t>(random() % 2 == 0 ? 3 : random()),
                  .kind = static_cast<CellKind>(random() % 4),
                  .zero = 0};
    std::memcpy(cell.data(), &head, sizeof head);
    const auto bytes = std::as_writable_bytes(std::span(cell));
    const std::size_t payload = payload_bytes(head);
    if (payload <= cell_payload_max) {
      std::memcpy(bytes.data() + sizeof head + (head.kind == CellKind::ring ? sizeof(RingPlace) : 0), "key",
                  std::min<std::size_t>(3, cell_payload_max - sizeof(RingPlace)));
      head.crc = cell_crc(bytes, payload);
      std::memcpy(cell.data(), &head, sizeof head);
    }
    const auto found = parse_cell(bytes, {.key = key, .hash = hash, .generation = test_generation});
    if (!found) continue;
    ASSERT_LE(found->value.size(), cell_payload_max);
    ASSERT_LE(found->value_bytes, IndexGeometry::value_bytes_max);
  }
}

struct Direct {
  ReadBy by;
  const char* transport;
};

ClientOptions options_for(const Direct& direct) {
  ClientOptions options;
  options.transports.required = direct.transport;
  return options;
}

// Reads until a value comes without a call. The first reads obtain the directory.
Task<bool> found_without_call(KvClient& client, OneSidedReader& reader, std::string key, std::string expected) {
  Loop& loop = *Loop::current();
  const Time end = loop.after(std::chrono::seconds(30));
  while (loop.now() < end) {
    const std::uint64_t before = reader.counters().found;
    const Result<std::optional<Value>> value = co_await client.get(key);
    EXPECT_TRUE(value && *value && (*value)->bytes == expected);
    if (!value || !*value || (*value)->bytes != expected) co_return false;
    if (reader.counters().found != before) co_return true;
    co_await loop.sleep(std::chrono::milliseconds(1));
  }
  co_return false;
}

Task<void> read_directly(Direct direct, ClientOptions options, std::string address) {
  Client link(options);
  const Result<void> connected = co_await link.connect(address);
  EXPECT_TRUE(connected) << (connected ? "" : connected.error().text);
  if (!connected) co_return;
  OneSidedReader reader(link, {.by = direct.by, .calls_every = 0});
  KvClient client = KvClientAccess::with(link, reader);
  for (const std::size_t bytes : {0U, 1U, 64U, 93U, 94U, 1000U, 30'000U}) {
    const std::string key = "k" + std::to_string(bytes);
    const auto done1 = co_await client.set(key, std::string(bytes, 'v'));
    EXPECT_TRUE(done1);
    const bool found = co_await found_without_call(client, reader, key, std::string(bytes, 'v'));
    EXPECT_TRUE(found) << bytes;
    // Each change is seen at once, also those of clients of Redis.
    for (int i = 0; i < 20; ++i) {
      const std::string text = std::to_string(i) + std::string(bytes, 'w');
      const Result<std::uint64_t> version = co_await client.set(key, text);
      const Result<std::optional<Value>> value = co_await client.get(key);
      EXPECT_TRUE(value && *value && version && (*value)->bytes == text && (*value)->version == *version);
    }
    const auto done2 = co_await client.remove(key);
    EXPECT_TRUE(done2);
    const Result<std::optional<Value>> value = co_await client.get(key);
    EXPECT_TRUE(value && !*value);
  }
  // An entry that expires is read by calls.
  const auto done3 = co_await client.set("expires", "v", std::chrono::seconds(1000));
  EXPECT_TRUE(done3);
  const std::uint64_t before = reader.counters().found;
  const Result<std::optional<Value>> value = co_await client.get("expires");
  EXPECT_TRUE(value && *value && (*value)->bytes == "v");
  EXPECT_EQ(reader.counters().found, before);
}

TEST(DirectReads, FollowEveryChange) {
  for (const unsigned shards : {1U, 3U}) {
    for (const Direct direct :
         {Direct{ReadBy::automatic, "shm"}, Direct{ReadBy::memory, "shm"}, Direct{ReadBy::memory, "stream"}}) {
      SCOPED_TRACE(std::string(direct.transport) + (direct.by == ReadBy::memory ? ", memory" : ", mapped"));
      ServerOptions options;
      KvServer server({.shards = shards, .index_bytes_max = std::size_t{16} << 20}, options);
      sync_wait(read_directly(direct, options_for(direct), server.address()));
    }
  }
}

// A network with a simulated RDMA device, which client and server share.
class DeviceNetwork final : public transport::Network {
 public:
  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override {
    return streams_.listen(loop, address, sink);
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return streams_.connect(loop, std::move(address), timeout);
  }
  std::vector<std::shared_ptr<transport::Transport>> transports(const TransportOptions& options) override {
    if (options.order.empty()) return {};
    std::shared_ptr<transport::Transport> made = made_.lock();
    if (made == nullptr) {
      made_ = made = transport::make_rdma_transport({.device = "sim0", .huge_pages = false}, fabric);
    }
    return {made};
  }
  std::vector<std::string_view> transport_names() const override { return {"rdma"}; }

  const std::shared_ptr<transport::SimFabric> fabric = transport::SimFabric::create({}, 1);

 private:
  transport::SimNetwork streams_{7};
  std::weak_ptr<transport::Transport> made_;
};

// A store whose clients reach it over the simulated device, in virtual time.
class DirectReadsOfDevice : public ::testing::Test {
 protected:
  DirectReadsOfDevice() {
    register_service(server_, service_);
    store_.bind(std::span(&only_, 1));
    client_options_.transports = {.order = {"rdma"}, .required = "rdma"};
    client_options_ = transport::over(network_, client_options_);
  }
  ServerOptions server_options() const {
    ServerOptions options{.listen = "server:1"};
    options.transports = {.order = {"rdma"}, .required = "rdma"};
    return transport::over(network_, options);
  }

  const std::shared_ptr<DeviceNetwork> network_ = std::make_shared<DeviceNetwork>();
  Loop loop_{std::make_unique<transport::FabricPoller>(network_->fabric), {.log = no_log()}};
  Loop* const only_ = &loop_;
  Store store_{{.memory_bytes = 4 << 20, .index_bytes_max = 4 << 20}};
  Service service_{store_};
  Server server_{loop_, server_options()};
  ClientOptions client_options_;
};

TEST_F(DirectReadsOfDevice, AreExecutedByIt) {
  loop_.run([](Server& started, ClientOptions options) -> Task<void> {
    const auto listening = started.start();
    EXPECT_TRUE(listening);
    const Direct direct{ReadBy::automatic, "rdma"};
    co_await read_directly(direct, options, "server:1");
  }(server_, client_options_));
}

constexpr std::size_t at_once = 48;
constexpr int reads_in_all = 20'000;

// Reads of the bytes that a GET reads, as many at once.
Task<void> keep_reading(RemoteMemory& remote, RemoteRegion region, MutableBytes into, int& left) {
  while (left-- > 0) {
    const Result<void> read = co_await remote.read(region, 0, into);
    EXPECT_TRUE(read);
    if (!read) co_return;
  }
}

Task<void> keep_getting(KvClient& client, int& left) {
  while (left-- > 0) {
    const std::string key = "key" + std::to_string(left % 100);
    const Result<std::optional<Value>> value = co_await client.get(key);
    EXPECT_TRUE(value && *value && (*value)->bytes == std::string(64, 'v'));
    if (!value || !*value) co_return;
  }
}

double per_second(Time begin) {
  return reads_in_all / std::chrono::duration<double>(Loop::current()->now() - begin).count();
}

// GETs are limited by the rate at which the device reads, in the time of the simulation: 100 Gb/s, with the costs of
// the device's requests and completions, and without those of the processor's other instructions.
TEST_F(DirectReadsOfDevice, HaveItsRate) {
  double reads_per_s = 0;
  double gets_per_s = 0;
  loop_.run([](Server& server, ClientOptions options, double& reads, double& gets) -> Task<void> {
    const auto listening = server.start();
    EXPECT_TRUE(listening);
    Client link(options);
    const Result<void> connected = co_await link.connect("server:1");
    EXPECT_TRUE(connected);
    if (!connected) co_return;
    constexpr std::size_t bytes = IndexGeometry::candidates * IndexGeometry::cell_bytes;
    const RegisteredBuffer theirs = std::move(*RegisteredBuffer::allocate(server, bytes));
    const ExposedRegion region = std::move(*theirs.expose(0, bytes, RegionAccess::read));
    RegisteredBuffer mine = std::move(*RegisteredBuffer::allocate(link, at_once * bytes));
    RemoteMemory remote(link);
    {
      Scope scope;
      int left = reads_in_all;
      const Time begin = Loop::current()->now();
      for (std::size_t i = 0; i < at_once; ++i) {
        scope.spawn(keep_reading(remote, region.handle(), mine.memory().subspan(i * bytes, bytes), left));
      }
      co_await scope.join();
      reads = per_second(begin);
    }
    OneSidedReader reader(link, {.calls_every = 0});
    KvClient client = KvClientAccess::with(link, reader);
    for (int i = 0; i < 100; ++i) {
      const std::string key = "key" + std::to_string(i);
      const auto set = co_await client.set(key, std::string(64, 'v'));
      EXPECT_TRUE(set);
      const bool found = co_await found_without_call(client, reader, key, std::string(64, 'v'));
      EXPECT_TRUE(found);
    }
    const std::uint64_t before = reader.counters().found;
    Scope scope;
    int left = reads_in_all;
    const Time begin = Loop::current()->now();
    for (std::size_t i = 0; i < at_once; ++i) scope.spawn(keep_getting(client, left));
    co_await scope.join();
    gets = per_second(begin);
    EXPECT_EQ(reader.counters().found - before, static_cast<std::uint64_t>(reads_in_all)) << "some were calls";
  }(server_, client_options_, reads_per_s, gets_per_s));
  RecordProperty("reads_per_s", static_cast<int>(reads_per_s));
  RecordProperty("gets_per_s", static_cast<int>(gets_per_s));
  EXPECT_GT(reads_per_s, 1e6);
  EXPECT_GE(gets_per_s, 0.9 * reads_per_s);
}

// The index grows from 64 cells. Readers of the old one call, and find entries in the new one then.
Task<void> grow(KvServer& server, Direct direct) {
  Client link(options_for(direct));
  const Result<void> connected = co_await link.connect(server.address());
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  OneSidedReader reader(link, {.by = direct.by, .calls_every = 0});
  KvClient client = KvClientAccess::with(link, reader);
  int written = 0;
  for (const int keys : {20, 200, 2000}) {
    for (; written < keys; ++written) {
      const std::string name = "key" + std::to_string(written);
      const auto done4 = co_await client.set(name, name);
      EXPECT_TRUE(done4);
    }
    for (int i = 0; i < keys; i += keys / 20) {
      const std::string name = "key" + std::to_string(i);
      const bool found = co_await found_without_call(client, reader, name, name);
      EXPECT_TRUE(found) << i;
    }
  }
  EXPECT_GE(reader.counters().directories, 2U);
}

TEST(DirectReads, GoOnAfterGrowth) {
  for (const Direct direct : {Direct{ReadBy::automatic, "shm"}, Direct{ReadBy::memory, "stream"}}) {
    KvServer server({.index_buckets_first = 16});
    sync_wait(grow(server, direct));
  }
}

// A server may send anything to attack its clients.
TEST(DirectReads, ADirectoryThatIsNoSuchMemoryIsRefused) {
  const IndexGeometry geometry{.buckets = 16, .ring_bytes = 1024};
  IndexMemory memory = IndexMemory::allocate(geometry.bytes());
  ASSERT_FALSE(memory.bytes().empty());
  const int devnull = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ShardIndex good;
  good.generation = 1;
  good.buckets = geometry.buckets;
  good.ring_bytes = geometry.ring_bytes;
  good.region.bytes = geometry.bytes();
  good.descriptor = memory.descriptor();
  const auto accepted = [&](auto change, std::size_t shards = 1, bool by_memory = false) {
    ShardIndex index = good;
    change(index);
    return OneSidedReader::valid(
        {.secret_first = 1, .secret_second = 2, .process = getpid(), .shards = std::vector<ShardIndex>(shards, index)},
        !by_memory);
  };
  EXPECT_TRUE(accepted([](ShardIndex&) {}));
  EXPECT_TRUE(accepted([](ShardIndex&) {}, 3));
  EXPECT_FALSE(accepted([](ShardIndex&) {}, 0));
  EXPECT_FALSE(accepted([](ShardIndex&) {}, OneSidedReader::shards_max + 1));
  EXPECT_FALSE(accepted([](ShardIndex& index) { index.generation = 0; }));
  for (const std::uint64_t buckets : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{32}, ~std::uint64_t{0},
                                      std::uint64_t{1} << 63, std::uint64_t{1} << 32}) {
    EXPECT_FALSE(accepted([&](ShardIndex& index) { index.buckets = buckets; })) << buckets;
    EXPECT_FALSE(accepted([&](ShardIndex& index) { index.buckets = buckets; }, 1, true)) << buckets;
  }
  for (const std::uint64_t bytes : {std::uint64_t{1023}, std::uint64_t{2048}, ~std::uint64_t{0} - 63}) {
    EXPECT_FALSE(accepted([&](ShardIndex& index) { index.ring_bytes = bytes; })) << bytes;
    EXPECT_FALSE(accepted([&](ShardIndex& index) { index.ring_bytes = bytes; }, 1, true)) << bytes;
  }
  EXPECT_FALSE(accepted([](ShardIndex& index) { index.identity = 1; })) << "another file";
  EXPECT_FALSE(accepted([](ShardIndex& index) { index.descriptor = -1; }));
  EXPECT_FALSE(accepted([&](ShardIndex& index) { index.descriptor = devnull; })) << "no file";
  close(devnull);
}

// A reader that has mapped the memory stops to read it when the owner does not extend its lease any more.
Task<void> outlive(std::string address, KvServer& server) {
  Client link(options_for({ReadBy::automatic, "shm"}));
  const auto done5 = co_await link.connect(address);
  EXPECT_TRUE(done5);
  OneSidedReader reader(link, {.calls_every = 0});
  KvClient client = KvClientAccess::with(link, reader);
  const auto done6 = co_await client.set("key", "value");
  EXPECT_TRUE(done6);
  const bool found = co_await found_without_call(client, reader, "key", "value");
  EXPECT_TRUE(found);
  EXPECT_TRUE(reader.mapped());
  server.server().stop(std::chrono::milliseconds(0));
  // Blocks the loop, so that the end of the connection is not noticed.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (reader.find("key") && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_FALSE(reader.find("key"));
}

TEST(DirectReads, EndWithTheLeaseOfTheOwner) {
  KvServer server;
  sync_wait(outlive(server.address(), server));
}

}  // namespace
}  // namespace hawser::kv
