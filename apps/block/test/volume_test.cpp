// Volumes of a server, over the byte stream and shared memory.
#include "block/volume.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <semaphore>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "block/service.h"
#include "block/store/store.h"
#include "hawser/hawser.h"
#include "hawser/interceptor.h"

namespace hawser::block {
namespace {

// Occupies a thread that executes offloaded handlers until the test lets it continue: true. After a minute: false.
struct DiskThread {
  bool occupy() {
    occupied = true;
    return end.try_acquire_for(std::chrono::minutes(1));
  }
  std::atomic<bool> occupied = false;
  std::binary_semaphore end{0};
};

class BlockService : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::size_t direct_bytes_max = 64 * 1024;

  void SetUp() override {
    auto opened = VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{256} << 20), {});
    ASSERT_TRUE(opened);
    store_ = std::move(*opened);
    service_ = std::make_unique<VolumeService>(*store_, request_bytes_max);
    server_ = std::make_unique<Server>();
    service_->attach(*server_);
    if (std::string(GetParam()) == "shm") server_->enable_shm();
    ASSERT_TRUE(server_->start());
  }
  void TearDown() override { server_->stop(); }
  // Runs `body` with a connected client.
  template <class Body>
  void with_client(Body body) {
    sync_wait([](BlockService& self, Body run) -> Task<void> {
      ClientOptions options;
      options.transports.enabled.clear();
      Client client(options);
      if (std::string(GetParam()) == "shm") client.enable_shm();
      const Result<void> connected = co_await client.connect(self.server_->address());
      EXPECT_TRUE(connected);
      if (!connected) co_return;
      EXPECT_EQ(client.transport(), GetParam());
      co_await run(client);
    }(*this, body));
  }
  // Volumes are in memory. Longer requests than direct_bytes_max need the only thread of the disk.
  void serve_in_memory() {
    ServerOptions options;
    options.threads = 1;
    options.loop.offload_threads_max = 1;
    server_ = std::make_unique<Server>(options);
    service_ = std::make_unique<VolumeService>(*store_, request_bytes_max, VolumeRules(), direct_bytes_max);
    service_->attach(*server_);
    server_->register_handler<&DiskThread::occupy>(&disk_, {.offload = true});
    server_->use([this](IncomingCall& call, Next next) -> Task<Result<void>> {
      if (!call.method().ends_with("write") && !call.method().ends_with("read")) co_return co_await next();
      const std::stop_callback counts(call.token(), [this] { ++cancelled_; });
      ++arrived_;
      co_return co_await next();
    });
    if (std::string(GetParam()) == "shm") server_->enable_shm();
    ASSERT_TRUE(server_->start());
  }
  static Task<void> occupy(Client& client) {
    const Result<bool> ended = co_await client.call<&DiskThread::occupy>();
    EXPECT_TRUE(ended.value_or(false)) << "a request has waited for the thread";
  }
  static Task<void> moment() { co_await Loop::current()->sleep(std::chrono::milliseconds(1)); }
  static int code(const auto& result) { return result ? 0 : result.error().application_code; }

  std::unique_ptr<VolumeStore> store_;
  std::unique_ptr<VolumeService> service_;
  DiskThread disk_;
  std::atomic<unsigned> arrived_ = 0;  // Reads and writes.
  std::atomic<unsigned> cancelled_ = 0;
  std::unique_ptr<Server> server_;
};

TEST_P(BlockService, BytesAreReadAsTheyWereWritten) {
  ASSERT_TRUE(store_->create("v", std::uint64_t{80} << 20, false));
  with_client([](Client& client) -> Task<void> {
    Volume volume(client, "v");
    EXPECT_EQ((co_await volume.size()).value_or(0), std::uint64_t{80} << 20);
    const std::size_t sizes[] = {1, 511, 4096, 5000, 65536, std::size_t{40} << 20};
    for (const std::size_t size : sizes) {
      std::vector<std::byte> bytes(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + size);
      EXPECT_TRUE(co_await volume.write(4096 + size % 3, bytes, true)) << size;
      std::vector<std::byte> read(size);
      EXPECT_TRUE(co_await volume.read(4096 + size % 3, read)) << size;
      EXPECT_TRUE(read == bytes) << size;
    }
    EXPECT_TRUE(co_await volume.flush());
    EXPECT_TRUE(co_await volume.discard(0, 8192));
    EXPECT_TRUE(co_await volume.write_zeroes(8192, 10));
    std::vector<std::byte> read(8202, std::byte{1});
    EXPECT_TRUE(co_await volume.read(0, read));
    EXPECT_TRUE(read == std::vector<std::byte>(8202));
  });
  EXPECT_EQ((*store_->find("v"))->scrub(0, UINT64_MAX)->damaged, 0U);
}

// Requests beyond the limit of bytes in flight wait, and none is refused.
TEST_P(BlockService, RequestsBeyondTheLimitWait) {
  ASSERT_TRUE(store_->create("v", std::uint64_t{16} << 20, false));
  with_client([](Client& client) -> Task<void> {
    Volume volume(client, "v", {.bytes_in_flight_max = 128 * 1024});
    const std::vector<std::byte> bytes(64 * 1024, std::byte{7});
    Scope scope;
    int written = 0;
    std::size_t most = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      scope.spawn(
          [](Volume& to, Bytes from, std::uint64_t offset, int& count, Client& over, std::size_t& max) -> Task<void> {
            if (co_await to.write(offset, from)) ++count;
            max = std::max(max, over.calls_in_flight());
          }(volume, bytes, i * 64 * 1024, written, client, most));
    }
    most = std::max(most, client.calls_in_flight());
    co_await scope.join();
    EXPECT_EQ(written, 200);
    EXPECT_LE(most, 2U) << "each has half of the bytes in flight";
    EXPECT_GT(most, 0U);
  });
}

// Reads beyond the server's memory for them wait, and none is refused.
TEST_P(BlockService, ReadsBeyondTheMemoryOfTheServerWait) {
  ASSERT_TRUE(store_->create("v", std::uint64_t{64} << 20, false));
  with_client([](Client& client) -> Task<void> {
    constexpr std::size_t bytes = std::size_t{8} << 20;
    static_assert(bytes * 24 > 2 * request_bytes_max);  // The fixture gives the server request_bytes_max.
    Volume volume(client, "v", {.bytes_in_flight_max = bytes * 24});
    std::vector<std::byte> memory(bytes * 24);
    Scope scope;
    int read = 0;
    for (std::uint64_t i = 0; i < 24; ++i) {
      scope.spawn([](Volume& from, MutableBytes into, std::uint64_t offset, int& count) -> Task<void> {
        const Result<void> done = co_await from.read(offset, into);
        EXPECT_TRUE(done) << done.error().text;
        if (done) ++count;
      }(volume, MutableBytes(memory).subspan(i * bytes, bytes), i % 8 * bytes, read));
    }
    co_await scope.join();
    EXPECT_EQ(read, 24);
  });
}

TEST_P(BlockService, ErrorsOfTheStoreReachTheCaller) {
  ASSERT_TRUE(store_->create("v", 8192, false));
  with_client([](Client& client) -> Task<void> {
    std::vector<std::byte> bytes(4096);
    Volume volume(client, "v");
    EXPECT_EQ(code(co_await volume.read(8192, bytes)), EINVAL);
    EXPECT_EQ(code(co_await volume.write(8191, bytes)), ENOSPC);
    Volume absent(client, "absent");
    EXPECT_EQ(code(co_await absent.read(0, bytes)), ENOENT);
    EXPECT_EQ(code(co_await absent.flush()), ENOENT);
    const std::uint64_t too_long = request_bytes_max + 1;
    const std::string name = "v";
    EXPECT_EQ(code(co_await client.call<&VolumeService::read>(name, std::uint64_t{0}, too_long)), EINVAL);
    EXPECT_EQ(code(co_await client.call<&VolumeService::create>(name, std::uint64_t{4096}, false)), EEXIST);
    EXPECT_TRUE(co_await client.call<&VolumeService::resize>(name, std::uint64_t{4096}));
    EXPECT_EQ((co_await volume.size()).value_or(0), 4096U);
    EXPECT_TRUE(co_await client.call<&VolumeService::remove>(name));
    EXPECT_EQ(code(co_await volume.read(0, bytes)), ENOENT);
    const Result<std::vector<VolumeStatus>> volumes = co_await client.call<&VolumeService::list>();
    EXPECT_TRUE(volumes && volumes->empty());
  });
}

// A client that had a volume does not change another one that has got its name.
TEST_P(BlockService, AnotherVolumeOfTheSameNameIsNotChanged) {
  ASSERT_TRUE(store_->create("v", 8192, false));
  with_client([this](Client& client) -> Task<void> {
    Volume volume(client, "v");
    EXPECT_EQ((co_await volume.size()).value_or(0), 8192U);
    const std::vector<std::byte> bytes(4096, std::byte{7});
    EXPECT_TRUE(co_await volume.write(0, bytes));
    EXPECT_TRUE(store_->remove("v"));
    EXPECT_EQ(code(co_await volume.write(0, bytes)), ENOENT);
    EXPECT_TRUE(store_->create("v", 8192, false));
    std::vector<std::byte> read(4096);
    EXPECT_EQ(code(co_await volume.write(0, bytes)), ENODEV);
    EXPECT_EQ(code(co_await volume.read(0, read)), ENODEV);
    EXPECT_EQ(code(co_await volume.flush()), ENODEV);
    EXPECT_EQ(code(co_await volume.discard(0, 4096)), ENODEV);
    EXPECT_EQ(code(co_await volume.write_zeroes(0, 4096)), ENODEV);
    EXPECT_EQ(code(co_await volume.extents(0, 4096, 1)), ENODEV);
    EXPECT_EQ(code(co_await volume.size()), ENODEV);
    // A client that knows the name only has the new volume, and so has one that asks anew.
    Volume by_name(client, "v");
    EXPECT_TRUE(co_await by_name.read(0, read));
    EXPECT_EQ(read, std::vector<std::byte>(4096));
    EXPECT_EQ((co_await by_name.size()).value_or(0), 8192U);
    EXPECT_TRUE(co_await by_name.write(0, bytes));
  });
}

TEST_P(BlockService, AServerWithoutUniqueNamesFindsVolumesByTheirNames) {
  ASSERT_TRUE(store_->create("v", 8192, false));
  Server old;
  old.register_handler<&VolumeService::info>(service_.get(), {.offload = true});
  ASSERT_TRUE(old.start());
  sync_wait([](std::string address) -> Task<void> {
    Client client;
    EXPECT_TRUE(co_await client.connect(address));
    Volume volume(client, "v");
    EXPECT_EQ((co_await volume.size()).value_or(0), 8192U);
  }(old.address()));
  old.stop();
}

// The only thread of the disk waits, as for a disk. Short requests of volumes in memory do not need it.
TEST_P(BlockService, ShortRequestsOfVolumesInMemoryNeedNoThreadOfTheDisk) {
  serve_in_memory();
  ASSERT_TRUE(store_->create("v", std::uint64_t{1} << 20, false));
  with_client([&disk = disk_](Client& client) -> Task<void> {
    Volume volume(client, "v");
    EXPECT_EQ((co_await volume.size()).value_or(0), std::uint64_t{1} << 20);
    Scope scope;
    scope.spawn(occupy(client));
    while (!disk.occupied) co_await moment();
    std::vector<std::byte> bytes(direct_bytes_max, std::byte{7});
    EXPECT_TRUE(co_await volume.write(4096, bytes));
    EXPECT_TRUE(co_await volume.write(5, Bytes(bytes).first(100)));
    std::vector<std::byte> found(direct_bytes_max);
    EXPECT_TRUE(co_await volume.read(4096, found));
    EXPECT_EQ(found, bytes);
    EXPECT_EQ(code(co_await volume.write(std::uint64_t{1} << 20, Bytes(bytes).first(1))), ENOSPC);
    disk.end.release();
    co_await scope.join();
    // Longer ones are executed there.
    bytes.assign(2 * direct_bytes_max, std::byte{9});
    EXPECT_TRUE(co_await volume.write(100, bytes));
    found.resize(bytes.size());
    EXPECT_TRUE(co_await volume.read(100, found));
    EXPECT_EQ(found, bytes);
  });
}

// The thread of the disk executes the writes 1 and 4, and then 2 and 3: what arrives last has not the last word.
TEST_P(BlockService, ConnectionsTakeTurnsWithLongWrites) {
  serve_in_memory();
  ASSERT_TRUE(store_->create("v", std::uint64_t{1} << 20, false));
  with_client([this](Client& client) -> Task<void> {
    Client other;
    EXPECT_TRUE(co_await other.connect(server_->address()));
    Scope scope;
    scope.spawn(occupy(client));
    while (!disk_.occupied) co_await moment();
    for (unsigned write = 1; write <= 4; ++write) {
      scope.spawn([](Client& of, std::byte value) -> Task<void> {
        EXPECT_TRUE(co_await Volume(of, "v").write(0, std::vector<std::byte>(2 * direct_bytes_max, value)));
      }(write == 4 ? other : client, static_cast<std::byte>(write)));
      while (arrived_ < write) co_await moment();
    }
    disk_.end.release();
    co_await scope.join();
    std::vector<std::byte> found(1);
    EXPECT_TRUE(co_await Volume(client, "v").read(0, found));
    EXPECT_EQ(found[0], std::byte{3});
  });
}

// Each has all of --memory-in-flight while it waits for the thread of the disk.
TEST_P(BlockService, LongRequestsThatTheirClientCancelsAreNotExecutedAndKeepNoMemory) {
  serve_in_memory();
  ASSERT_TRUE(store_->create("v", request_bytes_max, false));
  with_client([this](Client& client) -> Task<void> {
    static constexpr std::uint64_t most = request_bytes_max - 4096;
    Scope scope;
    scope.spawn(occupy(client));
    while (!disk_.occupied) co_await moment();
    Volume volume(client, "v");
    std::vector<std::byte> found(direct_bytes_max, std::byte{1});
    for (const bool writes : {false, true}) {
      std::stop_source cancelled;
      const unsigned arrived = arrived_;
      const unsigned ended = cancelled_;
      scope.spawn([](Client& of, std::stop_token token, bool write) -> Task<void> {
        const std::vector<std::byte> bytes(write ? most : 0, std::byte{7});
        const CallOptions options{.token = std::move(token), .attachment = bytes};
        const std::string name = "v";
        const auto expect_cancelled = [](const auto& done) {
          EXPECT_TRUE(!done && done.error().code == ErrorCode::cancelled);
        };
        if (write) {
          expect_cancelled(co_await of.call<&VolumeService::write>(options, name, std::uint64_t{0}, false));
        } else {
          expect_cancelled(co_await of.call<&VolumeService::read>(options, name, std::uint64_t{0}, most));
        }
      }(client, cancelled.get_token(), writes));
      while (arrived_ == arrived) co_await moment();
      cancelled.request_stop();
      while (cancelled_ == ended) co_await moment();
      EXPECT_TRUE(co_await volume.read(0, found));
    }
    disk_.end.release();
    EXPECT_TRUE(co_await volume.flush());  // On the same thread.
    co_await scope.join();
    EXPECT_TRUE(co_await volume.read(0, found));
    EXPECT_EQ(found, std::vector<std::byte>(direct_bytes_max));
  });
}

// They were copied into memory that nothing counted, each up to a request.
TEST_P(BlockService, WritesThatWaitForAThreadHaveCountedMemory) {
  serve_in_memory();
  ASSERT_TRUE(store_->create("v", request_bytes_max, false));
  with_client([this](Client& client) -> Task<void> {
    Client other;
    EXPECT_TRUE(co_await other.connect(server_->address()));
    Scope scope;
    scope.spawn(occupy(client));
    while (!disk_.occupied) co_await moment();
    std::stop_source cancelled;
    scope.spawn([](Client& of, std::stop_token token) -> Task<void> {
      const std::vector<std::byte> bytes(request_bytes_max, std::byte{1});
      const CallOptions options{.token = std::move(token), .attachment = bytes};
      const std::string name = "v";
      EXPECT_FALSE(co_await of.call<&VolumeService::write>(options, name, std::uint64_t{0}, false));
    }(client, cancelled.get_token()));
    while (service_->memory_in_use() < request_bytes_max) co_await moment();
    while (arrived_ < 1) co_await moment();
    constexpr std::size_t size = 2 * direct_bytes_max;
    scope.spawn([](Client& of) -> Task<void> {
      EXPECT_TRUE(co_await Volume(of, "v").write(0, std::vector<std::byte>(size, std::byte{2})));
    }(other));
    while (arrived_ < 2) co_await moment();
    EXPECT_EQ(service_->memory_in_use(), request_bytes_max) << "the second one waits";
    cancelled.request_stop();
    for (int i = 0; i < 60'000 && service_->memory_in_use() != size; ++i) co_await moment();
    EXPECT_EQ(service_->memory_in_use(), size) << "the memory of the second one";
    disk_.end.release();
    co_await scope.join();
    std::vector<std::byte> found(1);
    EXPECT_TRUE(co_await Volume(client, "v").read(0, found));
    EXPECT_EQ(found[0], std::byte{2});
  });
}

TEST_P(BlockService, ARequestThatIsTooLongIsRefused) {
  ASSERT_TRUE(store_->create("v", std::uint64_t{64} << 20, false));
  with_client([](Client& client) -> Task<void> {
    const std::vector<std::byte> bytes(request_bytes_max + 4096);
    const CallOptions options{.attachment = bytes};
    const std::string name = "v";
    EXPECT_EQ(code(co_await client.call<&VolumeService::write>(options, name, std::uint64_t{0}, false)), EINVAL);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, BlockService, ::testing::Values("tcp", "shm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hawser::block
