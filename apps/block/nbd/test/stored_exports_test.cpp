// Requests of a client that has gone.
#include "block/nbd/stored_exports.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "block/store/store.h"
#include "block/store/store_error.h"
#include "block/store/test/forwarding_file.h"
#include "hawser/hawser.h"

namespace hawser::block::nbd {
namespace {

// The only thread for requests is busy when the client goes.
Task<void> go_while_a_write_waits(VolumeStore& store) {
  Loop& loop = *Loop::current();
  StoredExports exports(loop, store, {});
  const std::shared_ptr<NbdDevice> gone = (co_await exports.open("v", {})).value();
  const std::shared_ptr<NbdDevice> later = (co_await exports.open("v", {})).value();
  std::binary_semaphore busy(0);
  Scope tasks;
  std::optional<Result<void>> written;
  const std::vector<std::byte> bytes(4096, std::byte{7});
  tasks.spawn([](Loop& on, std::binary_semaphore& until) -> Task<void> {
    (void)co_await on.offload([&until] { until.acquire(); });
  }(loop, busy));
  tasks.spawn([](NbdDevice& device, Bytes data, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await device.write(0, data, true);
  }(*gone, bytes, written));
  gone->abandon();
  busy.release();
  co_await tasks.join();
  EXPECT_EQ(written.value().error().application_code, ECANCELED);
  std::vector<std::byte> found(4096, std::byte{1});
  EXPECT_TRUE(co_await later->read(0, found));
  EXPECT_EQ(found, std::vector<std::byte>(4096));
}

TEST(NbdStoredExports, AWriteThatWaitsIsNotExecutedAfterItsClientHasGone) {
  const auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20), {});
  ASSERT_TRUE(store);
  ASSERT_TRUE((*store)->create("v", 8192, false));
  LoopOptions options;
  options.offload_threads_max = 1;
  sync_wait(go_while_a_write_waits(**store), options);
}

// A file in memory whose next sync waits.
struct HeldSync {
  std::atomic<bool> held = false;
  std::binary_semaphore entered = std::binary_semaphore(0);
  std::binary_semaphore opened = std::binary_semaphore(0);
};
class HeldSyncFile final : public ForwardingFile {
 public:
  explicit HeldSyncFile(HeldSync& sync) : sync_(sync) {}
  Result<void> sync() override {
    if (sync_.held.exchange(false)) {
      sync_.entered.release();
      sync_.opened.acquire();
    }
    return ForwardingFile::sync();
  }

 private:
  HeldSync& sync_;
};
class HeldSyncDirectory final : public VolumeDirectory {
 public:
  explicit HeldSyncDirectory(HeldSync& sync) : sync_(sync) {}
  Result<std::vector<std::string>> names() override { return {}; }
  Result<VolumeFiles> open(const std::string&, bool) override { return store_fail(ENOENT, "no volume"); }
  Result<VolumeFiles> create(const std::string&) override {
    return VolumeFiles{std::make_unique<HeldSyncFile>(sync_), std::make_unique<MemoryFile>()};
  }
  Result<void> publish(const std::string&) override { return {}; }
  Result<void> remove(const std::string&) override { return {}; }
  void abandon(const std::string&) noexcept override {}
  std::string medium() const override { return "m"; }

 private:
  HeldSync& sync_;
};

Task<void> count_success(Task<Result<void>> task, unsigned& done) {
  if (co_await std::move(task)) ++done;
}

// A resize has all of the volume, on another thread, and goes on when the loop has begun all of these requests.
Task<void> make_requests_during_a_resize(VolumeStore& store, HeldSync& sync) {
  Loop& loop = *Loop::current();
  StoredExports exports(loop, store, {.direct_bytes_max = 65536});
  const std::shared_ptr<NbdDevice> device = (co_await exports.open("v", {})).value();
  std::vector<std::byte> found(4096);
  const std::vector<std::byte> bytes(4096, std::byte{7});
  sync.held = true;
  std::jthread resize([&store] { EXPECT_TRUE(store.find("v").value()->resize(16384)); });
  sync.entered.acquire();
  EXPECT_FALSE(device->write_now(0, bytes, false));
  EXPECT_FALSE(device->read_now(0, found));
  Scope tasks;
  unsigned done = 0;
  tasks.spawn(count_success(device->write(0, bytes, true), done));
  tasks.spawn(count_success(device->flush(), done));
  tasks.spawn(count_success(device->discard(4096, 4096), done));
  tasks.spawn(count_success(device->write_zeroes(8192, 4096, false, true), done));
  EXPECT_EQ(done, 0U);
  sync.opened.release();
  co_await tasks.join();
  EXPECT_EQ(done, 4U);
  EXPECT_TRUE(co_await device->read(0, found));
  EXPECT_EQ(found, bytes);
}

TEST(NbdStoredExports, ARequestThatWaitsForAnotherOneDoesNotHoldTheLoop) {
  HeldSync sync;
  const auto store = VolumeStore::open(std::make_unique<HeldSyncDirectory>(sync), {});
  ASSERT_TRUE(store);
  ASSERT_TRUE((*store)->create("v", 32768, false));
  sync_wait(make_requests_during_a_resize(**store, sync));
}

Task<void> store_result(Task<Result<void>> task, std::optional<Result<void>>& result) {
  result = co_await std::move(task);
}

// The client goes while its requests wait for a resize. It may have sent them again, and newer ones after them.
Task<void> abandon_requests_during_a_resize(VolumeStore& store, HeldSync& sync) {
  Loop& loop = *Loop::current();
  StoredExports exports(loop, store, {.direct_bytes_max = 65536});
  const std::shared_ptr<NbdDevice> old = (co_await exports.open("v", {})).value();
  const std::vector<std::byte> bytes(4096, std::byte{7});
  EXPECT_TRUE(co_await old->write(4096, bytes, false));
  sync.held = true;
  std::jthread resize([&store] { EXPECT_TRUE(store.find("v").value()->resize(16384)); });
  sync.entered.acquire();
  Scope tasks;
  std::array<std::optional<Result<void>>, 3> results;
  tasks.spawn(store_result(old->write(0, bytes, true), results[0]));
  tasks.spawn(store_result(old->discard(4096, 4096), results[1]));
  tasks.spawn(store_result(old->write_zeroes(4096, 4096, false, true), results[2]));
  co_await loop.sleep(std::chrono::milliseconds(20));  // Their threads wait for the ranges, if the machine is quick.
  old->abandon();
  sync.opened.release();
  co_await tasks.join();
  for (const std::optional<Result<void>>& result : results) EXPECT_FALSE(*result);
  const std::shared_ptr<NbdDevice> device = (co_await exports.open("v", {})).value();
  std::vector<std::byte> found(8192);
  EXPECT_TRUE(co_await device->read(0, found));
  EXPECT_EQ(std::vector(found.begin(), found.begin() + 4096), std::vector<std::byte>(4096));
  EXPECT_EQ(std::vector(found.begin() + 4096, found.end()), bytes);
}

TEST(NbdStoredExports, ARequestWhoseClientGoesWhileItWaitsChangesNothing) {
  HeldSync sync;
  const auto store = VolumeStore::open(std::make_unique<HeldSyncDirectory>(sync), {});
  ASSERT_TRUE(store);
  ASSERT_TRUE((*store)->create("v", 32768, false));
  sync_wait(abandon_requests_during_a_resize(**store, sync));
}

}  // namespace
}  // namespace hawser::block::nbd
