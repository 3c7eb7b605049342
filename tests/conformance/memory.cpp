#include "hawser/memory.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/backend.h"

// Access to a peer's memory over every transport: by devices, or by frames.
namespace hawser::conformance {

inline RemoteRegion give_region(RemoteRegion region) { return region; }

// Memory of a server, a part of which clients may access.
class MemoryStore {
 public:
  static constexpr std::size_t bytes = std::size_t{4} << 20;
  static constexpr std::size_t before = 64;

  explicit MemoryStore(const Server& server) : buffer_(std::move(*RegisteredBuffer::allocate(server, bytes))) {
    std::memset(buffer_.memory().data(), 'U', bytes);
  }
  RemoteRegion expose(RegionAccess access = RegionAccess::read_write, const ExposeOptions& options = {}) {
    region_ = std::move(*buffer_.expose(before, bytes - 2 * before, access, options));
    return region_.handle();
  }
  void revoke() { region_.revoke(); }
  MutableBytes exposed() { return buffer_.memory().subspan(before, bytes - 2 * before); }
  MutableBytes all() { return buffer_.memory(); }
  std::uint64_t notified(std::uint64_t offset) {
    ++notifications;
    return std::to_integer<std::uint64_t>(exposed()[offset]);
  }
  // Writes the memory of the caller.
  Task<Result<void>> fill(Context& context, RemoteRegion region, std::uint64_t count) {
    RemoteMemory callers(context);
    co_return co_await callers.write(region, 3, exposed().first(count));
  }
  // The bytes at the beginning that are no longer 'U'.
  std::uint64_t written() { return std::min(as_text(exposed()).find('U'), exposed().size()); }
  int notifications = 0;

 private:
  RegisteredBuffer buffer_;
  ExposedRegion region_;
};

class MemoryConformance : public Conformance {
 protected:
  // Runs body(store, client, remote, buffer of the client).
  template <class Body>
  void with_store(Body body) {
    const std::unique_ptr<Server> server = make_server();
    MemoryStore store(*server);
    server->register_handler<&MemoryStore::notified, &MemoryStore::fill, &MemoryStore::written>(&store);
    run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
      Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, MemoryStore::bytes);
      REQUIRE_OK(buffer);
      RemoteMemory remote(client);
      co_await body(store, client, remote, *buffer);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, MemoryConformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

void put_text(MutableBytes to, char first) {
  const std::string text = text_of(to.size(), first);
  std::memcpy(to.data(), text.data(), text.size());
}
bool equal(Bytes left, Bytes right) { return as_text(left) == as_text(right); }
bool untouched(Bytes bytes) { return as_text(bytes).find_first_not_of('U') == std::string_view::npos; }

TEST_P(MemoryConformance, ReadsAndWritesReachTheirBytesAndNoOthers) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const RemoteCapabilities can = remote.capabilities();
    EXPECT_TRUE(can.reachable);
    EXPECT_EQ(can.one_sided, client.transport() == "rdma");
    EXPECT_FALSE(can.one_sided_atomics);
    const RemoteRegion region = store.expose();
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{40'000},
                                    std::size_t{256} << 10, (std::size_t{256} << 10) + 1, std::size_t{3'000'001}}) {
      std::memset(store.all().data(), 'U', store.all().size());
      put_text(mine.memory(), static_cast<char>('a' + bytes % 7));
      auto written = co_await remote.write(region, 5, mine.memory().first(bytes));
      REQUIRE_OK(written);
      EXPECT_TRUE(equal(store.exposed().subspan(5, bytes), mine.memory().first(bytes))) << bytes;
      EXPECT_TRUE(untouched(store.all().first(MemoryStore::before + 5)));
      EXPECT_TRUE(untouched(store.all().subspan(MemoryStore::before + 5 + bytes)));
      for (const bool checksum : {false, true}) {
        std::memset(mine.memory().data(), 0, mine.size());
        auto read = co_await remote.read(region, 4, mine.memory().subspan(3, bytes), {.checksum = checksum});
        REQUIRE_OK(read);
        EXPECT_TRUE(equal(store.exposed().subspan(4, bytes), mine.memory().subspan(3, bytes))) << bytes;
        EXPECT_EQ(mine.memory()[2], std::byte{0});
        EXPECT_EQ(mine.memory()[bytes + 3], std::byte{0});
      }
    }
    const std::size_t whole = store.exposed().size();
    for (const std::uint64_t offset : {std::uint64_t{whole}, std::uint64_t{whole - 9}, UINT64_MAX, UINT64_MAX - 9}) {
      auto beyond = co_await remote.read(region, offset, mine.memory().first(10));
      EXPECT_ERROR(beyond, invalid_argument, "not within the region");
    }
    auto last = co_await remote.read(region, whole - 10, mine.memory().first(10));
    EXPECT_OK(last);
    const RemoteRegion read_only = store.expose(RegionAccess::read);
    auto write = co_await remote.write(read_only, 0, mine.memory().first(10));
    EXPECT_ERROR(write, invalid_argument, "not exposed to be written");
    auto add = co_await remote.fetch_add(read_only, 0, 1);
    EXPECT_ERROR(add, invalid_argument, "not exposed to be written");
    EXPECT_EQ(client.failovers(), 0U);
  });
}

TEST_P(MemoryConformance, AtomicsAreExecutedByTheOwner) {
  with_store([](MemoryStore& store, Client&, RemoteMemory& remote, RegisteredBuffer&) -> Task<void> {
    const RemoteRegion region = store.expose();
    std::uint64_t number = 40;
    std::memcpy(store.exposed().data() + 16, &number, sizeof number);
    auto first = co_await remote.fetch_add(region, 16, 2);
    REQUIRE_OK(first);
    EXPECT_EQ(*first, 40U);
    auto second = co_await remote.fetch_add(region, 16, UINT64_MAX);
    REQUIRE_OK(second);
    EXPECT_EQ(*second, 42U);
    auto failed = co_await remote.compare_and_swap(region, 16, 7, 1);
    REQUIRE_OK(failed);
    EXPECT_EQ(*failed, 41U);
    auto swapped = co_await remote.compare_and_swap(region, 16, 41, UINT64_C(0x8000000000000001));
    REQUIRE_OK(swapped);
    EXPECT_EQ(*swapped, 41U);
    std::memcpy(&number, store.exposed().data() + 16, sizeof number);
    EXPECT_EQ(number, UINT64_C(0x8000000000000001));
    for (const std::uint64_t offset : {1U, 7U, 20U}) {
      auto unaligned = co_await remote.fetch_add(region, offset, 1);
      EXPECT_ERROR(unaligned, invalid_argument, "not aligned to 8 bytes");
    }
    for (const std::uint64_t offset : {std::uint64_t{region.bytes}, region.bytes - 7, UINT64_MAX - 7}) {
      auto beyond = co_await remote.compare_and_swap(region, offset, 0, 0);
      EXPECT_ERROR(beyond, invalid_argument, "not within the region");
    }
    // Concurrent operations of one connection: none is lost.
    std::memset(store.exposed().data(), 0, 8);
    Scope scope;
    for (int i = 0; i < 200; ++i) {
      scope.spawn([](RemoteMemory& to, RemoteRegion in) -> Task<void> {
        auto added = co_await to.fetch_add(in, 0, 3);
        EXPECT_OK(added);
      }(remote, region));
    }
    co_await scope.join();
    std::memcpy(&number, store.exposed().data(), sizeof number);
    EXPECT_EQ(number, 600U);
  });
}

TEST_P(MemoryConformance, ABatchMovesScatteredBlocks) {
  with_store([](MemoryStore& store, Client&, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const RemoteRegion region = store.expose();
    put_text(mine.memory(), 'c');
    // Every other block of 500 bytes, in reverse order at the owner.
    constexpr std::size_t block = 500;
    constexpr std::size_t count = 3000;
    TransferBatch batch;
    for (std::size_t i = 0; i < count; ++i) batch.add(mine.memory().subspan(i * block, block), (count - i) * 2 * block);
    EXPECT_EQ(batch.blocks(), count);
    EXPECT_EQ(batch.runs().size(), count);
    EXPECT_EQ(batch.bytes(), count * block);
    auto written = co_await remote.write(region, batch);
    REQUIRE_OK(written);
    bool same = true;
    for (std::size_t i = 0; i < count; ++i) {
      same &= equal(store.exposed().subspan((count - i) * 2 * block, block), mine.memory().subspan(i * block, block));
      same &= untouched(store.exposed().subspan((count - i) * 2 * block + block, block));
    }
    EXPECT_TRUE(same);
    // At new places, where all blocks are one run.
    std::vector<std::uint64_t> offsets(count);
    for (std::size_t i = 0; i < count; ++i) offsets[i] = i * block;
    EXPECT_FALSE(batch.set_offsets(std::span(offsets).first(1)));
    EXPECT_TRUE(batch.set_offsets(offsets));
    EXPECT_EQ(batch.runs().size(), 1U);
    put_text(store.exposed(), 'k');
    auto read = co_await remote.read(region, batch, {}, 11);
    REQUIRE_OK(read);
    EXPECT_TRUE(equal(store.exposed().subspan(11, count * block), mine.memory().first(count * block)));
    // A block beyond the region: nothing of the batch is executed.
    batch.add(mine.memory().first(1), region.bytes - 10);
    std::memset(mine.memory().data(), 'U', mine.size());
    auto beyond = co_await remote.read(region, batch, {}, 10);
    EXPECT_ERROR(beyond, invalid_argument, "not within the region");
    auto overflow = co_await remote.read(region, batch, {}, UINT64_MAX);
    EXPECT_ERROR(overflow, invalid_argument, "not within the region");
    EXPECT_TRUE(untouched(mine.memory()));
    batch.clear();
    batch.add({}, 0);
    auto nothing = co_await remote.write(region, batch);
    EXPECT_OK(nothing);
  });
}

// Accesses append their number to `order` when they have ended.
Task<void> read_again(RemoteMemory remote, RemoteRegion region, MutableBytes into, int count, std::vector<int>& order) {
  for (int i = 0; i < count; ++i) {
    auto read = co_await remote.read(region, 0, into);
    EXPECT_OK(read);
  }
  order.push_back(0);
}
Task<void> write_batch(RemoteMemory remote, RemoteRegion region, const TransferBatch& batch, Duration timeout,
                       std::vector<int>& order, int number) {
  auto written = co_await remote.write(region, batch, {.timeout = timeout});
  EXPECT_OK(written);
  order.push_back(number);
}

TEST_P(MemoryConformance, InteractiveAccessesPrecedeBulkOnes) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const RemoteRegion region = store.expose();
    RemoteMemory bulk(client, TransferPriority::bulk);
    TransferBatch batch;  // 64 MB.
    for (int i = 0; i < 20; ++i) batch.add(mine.memory().first(3'200'000), 0);
    std::vector<int> order;
    Scope scope;
    scope.spawn(write_batch(bulk, region, batch, forever, order, 1));
    scope.spawn(write_batch(bulk, region, batch, std::chrono::hours(2), order, 2));
    scope.spawn(write_batch(bulk, region, batch, std::chrono::hours(1), order, 3));
    scope.spawn(read_again(remote, region, mine.memory().subspan(3'500'000, 10), 20, order));
    co_await scope.join();
    EXPECT_EQ(order, (std::vector<int>{0, 3, 2, 1})) << "small reads, then the writes by deadline";
  });
}

// A call finds written what was on its way when it was sent.
TEST_P(MemoryConformance, AShortWindowOfBulkBytesIsAheadOfACall) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const RemoteRegion region = store.expose();
    if (client.transport() == "rdma") co_return;  // There, devices move the bytes.
    std::memset(mine.memory().data(), 'w', mine.size());
    auto added = co_await remote.fetch_add(region, store.exposed().size() / 16 * 8, 0);
    REQUIRE_OK(added);
    RemoteMemory bulk(client, TransferPriority::bulk);
    TransferBatch batch;
    batch.add(mine.memory().first(1'000'000), 0);
    std::vector<int> order;
    Scope scope;
    scope.spawn(write_batch(bulk, region, batch, forever, order, 1));
    auto ahead = co_await client.call<&MemoryStore::written>();
    REQUIRE_OK(ahead);
    EXPECT_EQ(*ahead, (client.transport() == "shm" ? 96U : 144U) << 10);
    co_await scope.join();
  });
}

TEST_P(MemoryConformance, BulkAccessesAreNotStarved) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const RemoteRegion region = store.expose();
    RemoteMemory bulk(client, TransferPriority::bulk);
    std::vector<int> order;
    int ended = 0;
    bool stopping = false;
    const auto read_always = [&](MutableBytes into) -> Task<void> {
      while (!stopping) {
        auto read = co_await remote.read(region, 0, into);
        EXPECT_OK(read);
        ++ended;
      }
    };
    TransferBatch batch;
    batch.add(mine.memory().first(1'000'000), 2'000'000);
    Scope scope;
    for (std::size_t i = 0; i < 8; ++i)
      scope.spawn(read_always(mine.memory().subspan(2'000'000 + i * 200'000, 200'000)));
    co_await write_batch(bulk, region, batch, forever, order, 1);
    // At least 5 % of the bytes: the write ends before 20 times as much, and what is on its way, has been read.
    EXPECT_LT(ended * 200'000, 20 * 1'000'000 + 16'000'000);
    stopping = true;
    co_await scope.join();
  });
}

TEST_P(MemoryConformance, ANotificationFindsAllOfTheBatchWritten) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const RemoteRegion region = store.expose();
    const CallOptions options;
    std::memset(mine.memory().data(), 'w', mine.size());
    auto one = co_await remote.write_with_notify<&MemoryStore::notified>(region, 7, mine.memory().first(1'000'000),
                                                                         options, std::uint64_t{1'000'006});
    REQUIRE_OK(one);
    EXPECT_EQ(*one, std::uint64_t{'w'});
    TransferBatch batch;
    for (std::size_t i = 0; i < 1000; ++i) batch.add(mine.memory().subspan(i * 1000, 1000), 1'000'100 + i * 2000);
    auto many = co_await remote.write_with_notify<&MemoryStore::notified>(region, batch, options,
                                                                          std::uint64_t{1'000'100 + 999 * 2000});
    REQUIRE_OK(many);
    EXPECT_EQ(*many, std::uint64_t{'w'});
    EXPECT_EQ(store.notifications, 2);
    if (client.transport() == "rdma") co_return;  // There, a stale handle ends the connection.
    store.revoke();
    auto stale = co_await remote.write_with_notify<&MemoryStore::notified>(region, 0, mine.memory().first(10), options,
                                                                           std::uint64_t{0});
    EXPECT_ERROR(stale, stale_handle, "not exposed");
    EXPECT_EQ(store.notifications, 2);
  });
}

TEST_P(MemoryConformance, AHandlerAccessesItsCallersMemory) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory&, RegisteredBuffer& mine) -> Task<void> {
    put_text(store.exposed(), 'q');
    Result<ExposedRegion> open = mine.expose(100, 1'000'000, RegionAccess::write);
    REQUIRE_OK(open);
    auto filled = co_await client.call<&MemoryStore::fill>(open->handle(), std::uint64_t{900'000});
    REQUIRE_OK(filled);
    EXPECT_TRUE(equal(mine.memory().subspan(103, 900'000), store.exposed().first(900'000)));
    EXPECT_EQ(mine.memory()[102], std::byte{0});
    EXPECT_EQ(mine.memory()[103 + 900'000], std::byte{0});
  });
}

// On every transport, the owner or its device refuses; an old handle never gives bytes.
TEST_P(MemoryConformance, OldAndForgedHandlesAreStale) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    const auto expect_stale = [&](RemoteRegion region) -> Task<void> {
      region.places = {};  // Without a device, as a handle that a forger has made up.
      std::memset(mine.memory().data(), 'U', mine.size());
      auto read = co_await remote.read(region, 0, mine.memory().first(100'000));
      EXPECT_ERROR(read, stale_handle, "not exposed");
      EXPECT_TRUE(untouched(mine.memory()));
      auto written = co_await remote.write(region, 0, mine.memory().first(100'000));
      EXPECT_ERROR(written, stale_handle, "not exposed");
      auto added = co_await remote.fetch_add(region, 0, 1);
      EXPECT_ERROR(added, stale_handle, "not exposed");
    };
    const RemoteRegion old = store.expose();
    const RemoteRegion now = store.expose();  // Revokes the old one; the same bytes at the same address.
    EXPECT_NE(old.capability, now.capability);
    std::memset(store.all().data(), 's', store.all().size());
    co_await expect_stale(old);
    for (std::uint64_t RemoteRegion::* member : {&RemoteRegion::owner, &RemoteRegion::capability}) {
      RemoteRegion forged = now;
      forged.*member ^= 1;
      co_await expect_stale(forged);
    }
    for (const std::uint32_t bit : {0U, 31U}) {
      RemoteRegion forged = now;
      forged.slot ^= 1U << bit;
      co_await expect_stale(forged);
      forged = now;
      forged.generation ^= 1U << bit;
      co_await expect_stale(forged);
    }
    // A region of the other side.
    Result<ExposedRegion> own = mine.expose(0, 1000, RegionAccess::read_write);
    REQUIRE_OK(own);
    RemoteRegion others = own->handle();
    others.bytes = now.bytes;
    co_await expect_stale(others);
    EXPECT_EQ(as_text(store.all()).find_first_not_of('s'), std::string_view::npos);
    // A right that the region does not give.
    RemoteRegion read_only = store.expose(RegionAccess::read);
    read_only.places = {};
    read_only.writable = true;
    auto refused = co_await remote.write(read_only, 0, mine.memory().first(10));
    EXPECT_ERROR(refused, invalid_argument, "not exposed to be written");
    read_only.bytes += 1000;
    auto beyond = co_await remote.read(read_only, read_only.bytes - 1000, mine.memory().first(1000));
    EXPECT_ERROR(beyond, invalid_argument, "not within the region's");
    EXPECT_EQ(as_text(store.all()).find_first_not_of('s'), std::string_view::npos);
    EXPECT_EQ(client.failovers(), 0U);
  });
}

TEST_P(MemoryConformance, ALeaseEndsByItself) {
  with_store([](MemoryStore& store, Client&, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    Loop& on = *Loop::current();
    const Result<ExposedRegion> none = mine.expose(0, 10, RegionAccess::read, {.lease = Duration::zero()});
    EXPECT_ERROR(none, invalid_argument, "ExposeOptions::lease");
    const RemoteRegion region = store.expose(RegionAccess::read_write, {.lease = patience});
    EXPECT_EQ(region.places, decltype(region.places){});
    auto read = co_await remote.read(region, 0, mine.memory().first(10), {.timeout = patience});
    EXPECT_OK(read);
    const RemoteRegion brief = store.expose(RegionAccess::read_write, {.lease = 1ms});
    co_await on.sleep(2ms);
    std::memset(mine.memory().data(), 'w', mine.size());
    auto stale = co_await remote.write(brief, 0, mine.memory().first(50'000));
    EXPECT_ERROR(stale, stale_handle, "its lease has ended");
    EXPECT_TRUE(untouched(store.all()));
  });
}

// The region is revoked while a long write and a long read are in progress, each time a little later.
TEST_P(MemoryConformance, NothingChangesAfterARevocation) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    if (client.transport() == "rdma") co_return;  // tests/rdma/one_sided.cpp
    Loop& on = *Loop::current();
    put_text(mine.memory(), 'n');
    int cut = 0;
    for (int round = 0; round < 12; ++round) {
      const RemoteRegion region = store.expose();
      std::memset(store.all().data(), 'U', store.all().size());
      std::optional<Result<void>> outcome;
      Scope scope;
      scope.spawn([](RemoteMemory& to, RemoteRegion in, Bytes from, std::optional<Result<void>>& out) -> Task<void> {
        auto done = co_await to.write(in, 0, from);
        out = std::move(done);
      }(remote, region, mine.memory().first(region.bytes), outcome));
      for (int turn = 0; turn < round * 2; ++turn) {
        co_await on.sleep(100us);
      }
      store.revoke();
      const std::string at_revocation(as_text(store.all()));
      co_await scope.join();
      EXPECT_EQ(as_text(store.all()), at_revocation);
      REQUIRE(outcome.has_value());
      if (!*outcome) {
        ++cut;
        EXPECT_ERROR(*outcome, stale_handle, "not exposed");
      }
    }
    EXPECT_GE(cut, 1);
    EXPECT_TRUE(client.connected());
    auto sign = co_await client.ping();
    EXPECT_OK(sign);
  });
}

TEST_P(MemoryConformance, AnAccessThatIsGivenUpLeavesTheLocalMemoryAlone) {
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    Loop& on = *Loop::current();
    const RemoteRegion region = store.expose();
    std::memset(store.all().data(), 's', store.all().size());
    std::stop_source stopped;
    stopped.request_stop();
    const std::stop_token before = stopped.get_token();
    auto not_begun = co_await remote.read(region, 0, mine.memory().first(10), {.token = &before});
    EXPECT_ERROR(not_begun, cancelled, "before it began");
    int ended_early = 0;
    for (int round = 0; round < 8; ++round) {
      std::stop_source stop;
      const std::stop_token token = stop.get_token();
      Scope scope;
      scope.spawn([](RemoteMemory& of, RemoteRegion from, MutableBytes into, const std::stop_token& with,
                     int& early) -> Task<void> {
        auto done = co_await of.read(from, 0, into, {.timeout = patience, .token = &with});
        early += !done && done.error().code == ErrorCode::cancelled;
      }(remote, region, mine.memory().first(region.bytes), token, ended_early));
      for (int turn = 0; turn < round; ++turn) {
        co_await on.sleep(50us);
      }
      if (round % 2 == 0) {
        stop.request_stop();
        co_await scope.join();
      } else {
        scope.clear();  // Destroys the task.
      }
      // RDMA and UCX may still write into registered memory.
      auto free = co_await eventually(on, [&] { return !mine.in_use(); });
      EXPECT_TRUE(free);
      std::memset(mine.memory().data(), 'U', mine.size());
      auto sign = co_await client.ping();
      EXPECT_OK(sign);
      EXPECT_TRUE(untouched(mine.memory()));
    }
    // Soft-RoCE may execute an access before the doorbell returns.
    const bool device = remote.capabilities().one_sided;
    auto late = co_await remote.read(region, 0, mine.memory().first(region.bytes), {.timeout = Duration{1}});
    // If the machine stops this thread, the bytes arrive before the loop looks at its timers.
    for (int more = 0; more < 100 && late && !device; ++more) {
      late = co_await remote.read(region, 0, mine.memory().first(region.bytes), {.timeout = Duration{1}});
    }
    EXPECT_TRUE(device || ended_early >= 1);
    EXPECT_TRUE((device && late) || is_error(late, ErrorCode::deadline_exceeded, "within the timeout"));
    auto works = co_await remote.read(region, 0, mine.memory().first(10));
    EXPECT_OK(works);
  });
}

TEST_P(MemoryConformance, TheEndOfAConnectionIsReportedTruly) {
  const std::unique_ptr<Server> server = make_server();
  MemoryStore store(*server);
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    const std::unique_ptr<Client> client = make_client();
    auto connected = co_await client->connect(server->address());
    REQUIRE_OK(connected);
    // libucp 1.13 fails an assertion of its own if an endpoint is closed in the midst of a rendezvous.
    if (client->transport() == "ucx") co_return;
    Result<RegisteredBuffer> mine = RegisteredBuffer::allocate(*client, MemoryStore::bytes);
    REQUIRE_OK(mine);
    const RemoteRegion region = store.expose();
    RemoteMemory remote(*client);
    std::optional<Result<void>> write;
    std::optional<Result<void>> read;
    Scope scope;
    const auto begin = [](Task<Result<void>> task, std::optional<Result<void>>& out) -> Task<void> {
      out = co_await std::move(task);
    };
    scope.spawn(begin(remote.write(region, 0, mine->memory().first(3'000'000)), write));
    scope.spawn(begin(remote.read(region, 0, mine->memory().first(3'000'000)), read));
    co_await Loop::current()->sleep(Duration{1});
    client->close();
    co_await scope.join();
    REQUIRE(write && read);
    if (!*write) {
      const ErrorCode code = write->error().code;
      EXPECT_TRUE(code == ErrorCode::outcome_unknown || code == ErrorCode::not_sent) << error_of(*write);
    }
    if (!*read) {
      const ErrorCode code = read->error().code;
      EXPECT_TRUE(code == ErrorCode::unavailable || code == ErrorCode::not_sent) << error_of(*read);
    }
    auto closed = co_await remote.fetch_add(region, 0, 1);
    EXPECT_ERROR(closed, not_sent, "");
    co_await server->shut_down(10ms);
  });
}

// revoke() on another thread than that of the loop which serves the accesses.
TEST_P(MemoryConformance, ARevocationOnAnotherThreadWaitsForTheCopy) {
  if (!backend->real_time()) GTEST_SKIP() << "a simulation has one thread";
  with_store([](MemoryStore& store, Client& client, RemoteMemory& remote, RegisteredBuffer& mine) -> Task<void> {
    if (client.transport() == "rdma") co_return;
    put_text(mine.memory(), 'n');
    for (int round = 0; round < 10; ++round) {
      const RemoteRegion region = store.expose();
      std::memset(store.all().data(), 'U', store.all().size());
      std::string at_revocation;
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(round * 150));
        store.revoke();
        at_revocation = as_text(store.all());
      });
      auto written = co_await remote.write(region, 0, mine.memory().first(region.bytes));
      if (!written) {
        EXPECT_ERROR(written, stale_handle, "not exposed");
      }
      other.join();
      EXPECT_EQ(as_text(store.all()), at_revocation);
    }
    EXPECT_TRUE(client.connected());
  });
}

}  // namespace hawser::conformance
