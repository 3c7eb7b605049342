#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hawser/hawser.h"
#include "hawser/memory.h"
#include "kv/client_access.h"
#include "kv/index_publication.h"
#include "kv/one_sided_reader.h"
#include "kv/test/resp_peer.h"

// Readers of an index against servers that lie, failures, and changes of the index.
namespace hawser::kv {

// Answers as Service does, with lies. Every answer to read() has this value.
class LyingService {
 public:
  static constexpr std::string_view key = "key";
  static constexpr std::string_view called = "by a call";
  static constexpr IndexGeometry geometry{.buckets = 4, .ring_bytes = 128 * 1024};

  LyingService() : memory_(IndexMemory::allocate(geometry.bytes())) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    files_ = {memory_.descriptor(),
              ends[0],
              ends[1],
              open("/dev/zero", O_RDONLY | O_CLOEXEC),
              open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
              open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  }
  LyingService(const LyingService&) = delete;
  LyingService& operator=(const LyingService&) = delete;
  ~LyingService() {
    for (std::size_t i = 1; i < files_.size(); ++i) close(files_[i]);
  }

  void expose(const Server& server) {
    Result<RegisteredBuffer> buffer = RegisteredBuffer::wrap(server, memory_.bytes());
    ASSERT_TRUE(buffer);
    buffer_ = std::move(*buffer);
    Result<ExposedRegion> region = buffer_.expose(0, geometry.bytes(), RegionAccess::read);
    ASSERT_TRUE(region);
    region_ = std::move(*region);
  }
  void end() {
    region_ = {};
    buffer_ = {};
  }

  Task<Result<Directory>> directory() {
    forge();
    Directory made{.secret_first = 1, .secret_second = 2, .process = getpid(), .shards = {}};
    constexpr std::array<std::size_t, 5> counts{1, 1, 3, 40, OneSidedReader::shards_max + 1};
    ShardIndex index;
    index.generation = generation;
    index.buckets = geometry.buckets;
    index.ring_bytes = geometry.ring_bytes;
    index.region = region_.handle();
    index.descriptor = memory_.descriptor();
    // Half of the directories are valid.
    if (random_.below(2) == 0) lie(index, made.process);
    made.shards.assign(counts[random_.below(counts.size())], index);
    co_return made;
  }

  Task<Result<Reading>> read(std::string_view) {
    Reading reading{.value = Value{.bytes = std::string(called), .version = 1}, .generation = generation};
    if (random_.below(4) == 0) reading.generation = static_cast<std::uint32_t>(random_.next());
    co_return reading;
  }

 private:
  static constexpr std::uint32_t generation = 7;

  // A number that may pass a check that forgets a case.
  std::uint64_t number(std::uint64_t likely) {
    const std::array<std::uint64_t, 8> numbers{likely,      likely - 1,     likely + 1,    0, ~std::uint64_t{0},
                                               likely << 9, likely + 4'096, random_.next()};
    return numbers[random_.below(numbers.size())];
  }

  void lie(ShardIndex& index, std::int32_t& process) {
    switch (random_.below(8)) {
      case 0: index.generation = 0; break;
      case 1: index.buckets = number(geometry.buckets); break;
      case 2: index.ring_bytes = number(geometry.ring_bytes); break;
      case 3: index.region.bytes = number(geometry.bytes()); break;
      case 4: index.identity = random_.next(); break;
      case 5: index.descriptor = files_[random_.below(files_.size())]; break;
      case 6: index.region.generation += 1; break;
      default: process = static_cast<std::int32_t>(number(static_cast<std::uint64_t>(getpid()))); break;
    }
    if (random_.below(4) == 0) index.region.bytes = ~std::uint64_t{0};
  }

  // Writes cells for the key whose lengths and places lie, with the right checksum or without.
  void forge() {
    const std::uint64_t hash = hash_of({1, 2}, key);
    auto* const words = reinterpret_cast<std::uint64_t*>(memory_.bytes().data());
    std::array<std::uint64_t, 2> header{0, ~std::uint64_t{0}};  // The lease never ends.
    copy_to_shared(words, header.data(), header.size());
    for (std::uint64_t cell = 0; cell < geometry.cells(); ++cell) {
      std::array<std::uint64_t, IndexGeometry::cell_bytes / 8> forged;
      for (std::uint64_t& word : forged) word = random_.next();
      CellHead head{.crc = static_cast<std::uint32_t>(random_.next()),
                    .generation = random_.below(8) == 0 ? 0 : generation,
                    .hash = hash,
                    .version = random_.next(),
                    .value_bytes = static_cast<std::uint32_t>(number(93)),
                    .key_bytes = static_cast<std::uint16_t>(random_.below(4) == 0 ? random_.next() : key.size()),
                    .kind = static_cast<CellKind>(random_.below(4)),
                    .zero = 0};
      if (head.kind == CellKind::ring && random_.below(2) == 0) {
        head.value_bytes = static_cast<std::uint32_t>(random_.below(2) == 0 ? 0 : IndexGeometry::value_bytes_max);
      }
      const auto bytes = std::as_writable_bytes(std::span(forged));
      std::memcpy(bytes.data(), &head, sizeof head);
      std::size_t at = sizeof head;
      if (head.kind == CellKind::ring) {
        RingPlace place{.offset = number(geometry.bytes() - IndexGeometry::value_bytes_max), .crc = 0, .zero = 0};
        if (random_.below(2) == 0) place.offset &= ~std::uint64_t{7};
        std::memcpy(bytes.data() + at, &place, sizeof place);
        at += sizeof place;
      }
      std::memcpy(bytes.data() + at, key.data(), key.size());
      const std::size_t payload = payload_bytes(head);
      if (payload <= cell_payload_max && random_.below(4) != 0) {
        head.crc = cell_crc(bytes, payload);
        std::memcpy(bytes.data(), &head, sizeof head);
      }
      copy_to_shared(words + (IndexGeometry::header_bytes + cell * IndexGeometry::cell_bytes) / 8, forged.data(),
                     forged.size());
    }
  }

  Random random_{29};
  IndexMemory memory_;
  std::vector<int> files_;
  RegisteredBuffer buffer_;
  ExposedRegion region_;
};

}  // namespace hawser::kv

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::kv::LyingService::directory> =
    hawser::method_name<&hawser::kv::Service::directory>;
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::kv::LyingService::read> =
    hawser::method_name<&hawser::kv::Service::read>;

namespace hawser::kv {
namespace {

ClientOptions over_transport(const char* transport) {
  ClientOptions options;
  options.transports.required = transport;
  return options;
}

Task<void> read_lies(std::string address, ReadBy by, std::uint64_t& direct) {
  Client link(over_transport("shm"));
  const Result<void> connected = co_await link.connect(std::move(address));
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  constexpr int rounds = 400;
  for (int round = 0; round < rounds; ++round) {
    OneSidedReader reader(link, {.by = by, .calls_every = 0});
    KvClient client = KvClientAccess::with(link, reader);
    for (int i = 0; i < 4; ++i) {
      const Result<std::optional<Value>> value = co_await client.get(std::string(LyingService::key));
      EXPECT_TRUE(value && *value);
      if (!value || !*value) co_return;
      if ((*value)->bytes != LyingService::called) {
        EXPECT_LE((*value)->bytes.size(), IndexGeometry::value_bytes_max);
      }
    }
    direct += reader.counters().found;
  }
  EXPECT_TRUE(link.connected());
}

// Directories and cells with any numbers: the reader uses the answer of a call, or bytes within the memory that is
// exposed to it. The connection remains.
TEST(HostileIndex, LiesOfTheServerAreHarmless) {
  LyingService lies;
  Server server;
  server.register_handler<&LyingService::directory, &LyingService::read>(&lies);
  const Result<void> started = server.start();
  ASSERT_TRUE(started) << started.error().text;
  lies.expose(server);
  for (const ReadBy by : {ReadBy::automatic, ReadBy::memory}) {
    std::uint64_t direct = 0;
    sync_wait(read_lies(server.address(), by, direct));
    EXPECT_GT(direct, 0U) << "no lie was near enough to the truth";
  }
  server.stop(std::chrono::milliseconds(100));
  lies.end();
}

Task<Result<void>> fail_read() { co_return fail(ErrorCode::unavailable, "the test fails this read"); }

Task<void> fail_and_read(std::string address) {
  Client link(over_transport("stream"));
  const Result<void> connected = co_await link.connect(std::move(address));
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  bool failing = true;
  const auto read = [&](RemoteRegion region, std::uint64_t offset, MutableBytes into) -> Task<Result<void>> {
    if (failing) return fail_read();
    return RemoteMemory(link).read(region, offset, into);
  };
  OneSidedReader reader(link, {.by = ReadBy::memory, .calls_every = 0, .read_memory = read});
  KvClient client = KvClientAccess::with(link, reader);
  const Result<std::uint64_t> set = co_await client.set("key", "value");
  EXPECT_TRUE(set);
  Loop& loop = *Loop::current();
  const Time end = loop.after(std::chrono::seconds(30));
  const auto get = [&]() -> Task<bool> {
    const Result<std::optional<Value>> value = co_await client.get("key");
    co_await loop.sleep(std::chrono::milliseconds(1));
    co_return value && *value && (*value)->bytes == "value";
  };
  // All parts of the local memory are lost, and once more after they were replaced.
  while (reader.counters().failed < OneSidedReader::reads_max + 1 && loop.now() < end) {
    const bool right = co_await get();
    EXPECT_TRUE(right);
  }
  EXPECT_EQ(reader.counters().found, 0U);
  failing = false;
  while (reader.counters().found == 0 && loop.now() < end) {
    const bool right = co_await get();
    EXPECT_TRUE(right);
  }
  EXPECT_GT(reader.counters().found, 0U) << "reads without calls ended for ever";
}

// A device may still write into the local memory of a read that failed. The reader continues with other memory.
TEST(HostileIndex, ReadsGoOnAfterMoreFailuresThanThereIsMemoryFor) {
  KvServer server;
  sync_wait(fail_and_read(server.address()));
}

// Reads until a read fails or the task is destroyed.
Task<void> keep_reading(KvClient& client, std::uint64_t& reads) {
  for (int i = 0;; i = (i + 1) % 100) {
    const std::string key = "key" + std::to_string(i);
    const Result<std::optional<Value>> value = co_await client.get(key);
    if (!value) co_return;
    if (*value) {
      EXPECT_EQ((*value)->bytes, key + std::string(static_cast<std::size_t>(i) * 11, 'v'));
    }
    ++reads;
    // A read of mapped memory does not suspend, so others get their turn here.
    co_await Loop::current()->sleep(std::chrono::microseconds(1));
  }
}

// Reads are given up at any time: while they call for the directory, read the index, or call.
Task<void> give_up(KvServer& server, const char* transport, ReadBy by) {
  Client link(over_transport(transport));
  const Result<void> connected = co_await link.connect(server.address());
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  Random random(3);
  std::uint64_t reads = 0;
  std::uint64_t direct = 0;
  // On a busy machine, no read without a call may have ended in the usual rounds: then longer ones follow.
  const Time end = Loop::current()->after(std::chrono::seconds(60));
  for (std::uint64_t round = 0; round < 60 || (direct == 0 && Loop::current()->now() < end); ++round) {
    OneSidedReader reader(link, {.by = by, .calls_every = 5});
    KvClient client = KvClientAccess::with(link, reader);
    {
      Scope scope;
      for (int i = 0; i < 20; ++i) scope.spawn(keep_reading(client, reads));
      co_await Loop::current()->sleep(std::chrono::microseconds(random.below(3'000) * (1 + round / 60)));
    }
    direct += client.direct_reads();
  }
  EXPECT_TRUE(link.connected());
  EXPECT_GT(reads, 0U);
  EXPECT_GT(direct, 0U);
}

TEST(HostileIndex, ReadsMayBeGivenUpAtAnyTime) {
  KvServer server;
  RespPeer writer(server.address());
  for (int i = 0; i < 100; ++i) {
    const std::string key = "key" + std::to_string(i);
    EXPECT_EQ(writer.call({"SET", key, key + std::string(static_cast<std::size_t>(i) * 11, 'v')}), "+OK\r\n");
  }
  sync_wait(give_up(server, "shm", ReadBy::automatic));
  sync_wait(give_up(server, "shm", ReadBy::memory));
  sync_wait(give_up(server, "stream", ReadBy::memory));
}

// The server ends while reads of every stage are in progress: each of them ends, with the value or with an error.
Task<void> lose(std::string address, const char* transport, ReadBy by, KvServer& server) {
  Client link(over_transport(transport));
  const Result<void> connected = co_await link.connect(std::move(address));
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  OneSidedReader reader(link, {.by = by, .calls_every = 5});
  KvClient client = KvClientAccess::with(link, reader);
  std::uint64_t reads = 0;
  Scope scope;
  for (int i = 0; i < 50; ++i) scope.spawn(keep_reading(client, reads));
  co_await Loop::current()->sleep(std::chrono::milliseconds(20));
  std::thread ending([&] { server.server().stop(std::chrono::milliseconds(0)); });
  co_await scope.join();
  ending.join();
  EXPECT_GT(reads, 0U);
}

TEST(HostileIndex, TheEndOfTheServerEndsEachRead) {
  for (const auto& [transport, by] :
       {std::pair("shm", ReadBy::automatic), std::pair("shm", ReadBy::memory), std::pair("stream", ReadBy::memory)}) {
    SCOPED_TRACE(transport);
    KvServer server;
    RespPeer writer(server.address());
    for (int i = 0; i < 100; ++i) {
      const std::string key = "key" + std::to_string(i);
      EXPECT_EQ(writer.call({"SET", key, key + std::string(static_cast<std::size_t>(i) * 11, 'v')}), "+OK\r\n");
    }
    sync_wait(lose(server.address(), transport, by, server));
  }
}

Task<void> read_while(std::string address, const char* transport, ReadBy by, const std::atomic<bool>& written,
                      std::atomic<std::uint64_t>& direct) {
  Client link(over_transport(transport));
  const Result<void> connected = co_await link.connect(std::move(address));
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  OneSidedReader reader(link, {.by = by, .calls_every = 0});
  KvClient client = KvClientAccess::with(link, reader);
  Random random(5);
  while (!written.load()) {
    const std::string key = "key" + std::to_string(random.below(3000));
    const Result<std::optional<Value>> value = co_await client.get(key);
    EXPECT_TRUE(value);
    if (!value) co_return;
    // The value begins with its key, and all bytes behind that are equal.
    if (!*value) continue;
    const std::string& bytes = (*value)->bytes;
    const bool right =
        bytes.starts_with(key + "=") && std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(key.size()) + 2,
                                                    bytes.end(), [&](char c) { return c == bytes[key.size() + 1]; });
    EXPECT_TRUE(right) << key << ": " << bytes.substr(0, 100);
    if (!right) co_return;
    direct.store(client.direct_reads());
  }
}

// Entries are written, evicted and removed, and the index grows, while readers read.
TEST(HostileIndex, ReadersSeeNoOtherValueWhileEntriesAreEvictedAndTheIndexGrows) {
  KvServer server({.memory_bytes = 2 << 20, .index_bytes_max = std::size_t{4} << 20, .index_buckets_first = 16});
  std::atomic<bool> written = false;
  std::atomic<std::uint64_t> mapped = 0;
  std::atomic<std::uint64_t> by_frames = 0;
  std::thread writing([&] {
    RespPeer writer(server.address());
    Random random(6);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto enough = [&] { return (mapped > 100 && by_frames > 100) || std::chrono::steady_clock::now() > end; };
    for (int i = 0; i < 300 || !enough(); ++i) {
      std::string requests;
      constexpr int batch = 50;
      for (int k = 0; k < batch; ++k) {
        // Later ones are of more keys, so that the index grows.
        const std::string key =
            "key" + std::to_string(random.below(static_cast<std::uint64_t>(10 * std::min(i, 299) + 10)));
        const std::size_t size = random.below(4) == 0 ? random.below(6'000) : random.below(80);
        requests += random.below(10) == 0
                        ? request({"DEL", key})
                        : request({"SET", key, key + "=" + std::string(1 + size, static_cast<char>('a' + i % 26))});
      }
      writer.send(requests);
      for (int k = 0; k < batch; ++k) EXPECT_FALSE(writer.receive().empty());
    }
    written = true;
  });
  std::thread reading([&] { sync_wait(read_while(server.address(), "stream", ReadBy::memory, written, by_frames)); });
  sync_wait(read_while(server.address(), "shm", ReadBy::automatic, written, mapped));
  writing.join();
  reading.join();
  EXPECT_GT(mapped, 0U);
  EXPECT_GT(by_frames, 0U);
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"INFO"}).find("evicted_keys:0\r\n"), std::string::npos);
}

}  // namespace
}  // namespace hawser::kv
