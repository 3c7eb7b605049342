// Requests of a client that has gone.
#include "block/nbd/stored_exports.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <semaphore>
#include <utility>
#include <vector>

#include "block/store/store.h"
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

}  // namespace
}  // namespace hawser::block::nbd
