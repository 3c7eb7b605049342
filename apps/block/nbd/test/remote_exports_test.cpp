// The volumes of a server that starts again.
#include "block/nbd/remote_exports.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/temporary_folder.h"
#include "block/service.h"
#include "block/store/store.h"
#include "hawser/hawser.h"

namespace hawser::block::nbd {
namespace {

// A server with the volume "v" in memory.
class MemoryServer {
 public:
  explicit MemoryServer(const std::string& address)
      : store_(std::move(*VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20), {}))),
        service_(*store_),
        server_({.listen = address}) {
    EXPECT_TRUE(store_->create("v", 8192, false));
    service_.attach(server_);
    const Result<void> started = server_.start();
    EXPECT_TRUE(started) << started.error().text;
  }
  MemoryServer(const MemoryServer&) = delete;
  MemoryServer& operator=(const MemoryServer&) = delete;
  ~MemoryServer() { server_.stop({}); }

 private:
  const std::unique_ptr<VolumeStore> store_;
  VolumeService service_;
  hawser::Server server_;
};

// The client finds out that its connection is lost.
Task<std::shared_ptr<NbdDevice>> open_again(Exports& exports) {
  for (;;) {
    Result<std::shared_ptr<NbdDevice>> device = co_await exports.open("v", {});
    if (device) co_return std::move(*device);
    co_await Loop::current()->sleep(std::chrono::milliseconds(1));
  }
}

Task<void> restart(std::string address) {
  std::optional<MemoryServer> server(std::in_place, address);
  RemoteExports exports(*Loop::current(), address, {});
  const Result<std::shared_ptr<NbdDevice>> first = co_await exports.open("v", {});
  const Result<std::shared_ptr<NbdDevice>> second = co_await exports.open("", {});
  EXPECT_TRUE(first && second);
  if (!first || !second) co_return;
  EXPECT_TRUE(co_await (*first)->flush());
  EXPECT_FALSE((*first)->lost().stop_requested());
  server.reset();
  server.emplace(address);
  const std::shared_ptr<NbdDevice> later = co_await open_again(exports);
  EXPECT_TRUE((*first)->lost().stop_requested());
  EXPECT_TRUE((*second)->lost().stop_requested());
  EXPECT_FALSE(later->lost().stop_requested());
  EXPECT_FALSE(co_await (*first)->flush());
  EXPECT_TRUE(co_await later->flush());
}

TEST(NbdRemoteExports, DevicesOfAnEarlierServerAreLost) {
  const TemporaryFolder folder;
  sync_wait(restart("unix:" + (folder.path() / "native").string()));
}

}  // namespace
}  // namespace hawser::block::nbd
