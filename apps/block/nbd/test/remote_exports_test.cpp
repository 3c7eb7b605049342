// The volumes of a server that starts again.
#include "block/nbd/remote_exports.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "block/nbd/client_name.h"
#include "block/service.h"
#include "block/store/disk_directory.h"
#include "block/store/store.h"
#include "hawser/hawser.h"
#include "hawser/interceptor.h"

namespace hawser::block::nbd {
namespace {

// A server with the volume "v", in memory or in a folder.
class MediumServer {
 public:
  explicit MediumServer(const std::string& address)
      : MediumServer(address, std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20)) {}
  MediumServer(const std::string& address, std::unique_ptr<VolumeDirectory> directory)
      : store_(std::move(*VolumeStore::open(std::move(directory), {}))),
        service_(*store_),
        server_({.listen = address}) {
    if (!store_->find("v")) {
      EXPECT_TRUE(store_->create("v", 8192, false));
    }
    service_.attach(server_);
    server_.use([this](IncomingCall& call, Next next) -> Task<Result<void>> {
      if (refuses && call.method().ends_with("write")) {
        ++refused;
        co_return fail(ErrorCode::overloaded, "no memory");
      }
      co_return co_await next();
    });
    const Result<void> started = server_.start();
    EXPECT_TRUE(started) << started.error().text;
  }
  MediumServer(const MediumServer&) = delete;
  MediumServer& operator=(const MediumServer&) = delete;
  ~MediumServer() { server_.stop({}); }

  std::atomic<bool> refuses = false;  // Writes.
  std::atomic<unsigned> refused = 0;

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
  std::optional<MediumServer> server(std::in_place, address);
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

Task<void> restart_in(std::filesystem::path folder, bool loss) {
  const std::string address = "unix:" + (folder / "native").string();
  const auto volumes = [&] { return std::move(*DiskDirectory::open(folder / "volumes", DiskDirectoryOptions())); };
  std::optional<MediumServer> server(std::in_place, address, volumes());
  RemoteExports exports(*Loop::current(), address, {});
  const Result<std::shared_ptr<NbdDevice>> device = co_await exports.open("v", {});
  EXPECT_TRUE(device);
  if (!device) co_return;
  const std::vector<std::byte> bytes(4096, std::byte{7});
  EXPECT_TRUE(co_await (*device)->write(0, bytes, false));
  server.reset();
  if (loss) std::ofstream(folder / "volumes" / ".medium") << "another one";
  server.emplace(address, volumes());
  const Result<void> flushed = co_await (*device)->flush();
  EXPECT_EQ(flushed.has_value(), !loss);
  if (!flushed) {
    EXPECT_EQ(flushed.error().application_code, EIO) << flushed.error().text;
  }
  EXPECT_EQ((*device)->lost().stop_requested(), loss);
  const std::shared_ptr<NbdDevice> later = co_await open_again(exports);
  EXPECT_TRUE(co_await later->flush());
}

TEST(NbdRemoteExports, AFlushSucceedsAtAnotherStartOfTheServerWithTheSameMedium) {
  const TemporaryFolder folder;
  sync_wait(restart_in(folder.path(), false));
}

TEST(NbdRemoteExports, AFlushFailsIfTheMediumHasLostWrites) {
  const TemporaryFolder folder;
  sync_wait(restart_in(folder.path(), true));
}

Task<void> go_while_a_write_is_refused(MediumServer& server, std::string address) {
  Loop& loop = *Loop::current();
  RemoteExports exports(loop, address, {});
  const std::shared_ptr<NbdDevice> gone = co_await open_again(exports);
  const std::shared_ptr<NbdDevice> later = co_await open_again(exports);
  server.refuses = true;
  const std::vector<std::byte> bytes(4096, std::byte{7});
  std::optional<Result<void>> written;
  Scope tasks;
  tasks.spawn([](NbdDevice& device, Bytes data, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await device.write(0, data, false);
  }(*gone, bytes, written));
  while (server.refused == 0) co_await loop.sleep(std::chrono::milliseconds(1));
  gone->abandon();
  co_await tasks.join();
  EXPECT_EQ(written.value().error().code, ErrorCode::overloaded);
  // Another client waits until the server has memory.
  const unsigned before = server.refused;
  tasks.spawn([](NbdDevice& device, Bytes data, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await device.write(0, data, false);
  }(*later, bytes, written));
  while (server.refused == before) co_await loop.sleep(std::chrono::milliseconds(1));
  server.refuses = false;
  co_await tasks.join();
  EXPECT_TRUE(*written);
}

TEST(NbdRemoteExports, ARefusedWriteIsNotRepeatedAfterItsClientHasGone) {
  const TemporaryFolder folder;
  const std::string address = "unix:" + (folder.path() / "native").string();
  MediumServer server(address);
  sync_wait(go_while_a_write_is_refused(server, address));
}

// A write that a killed process has sent, and that its server executes late.
Task<Result<void>> write_late(Client& client, std::string opening, Bytes bytes) {
  co_return co_await client.call<&VolumeService::write>(CallOptions{.attachment = bytes}, opening, std::uint64_t{0},
                                                        false);
}

Task<void> follow(std::string address, std::string client_name, bool safe) {
  Loop& loop = *Loop::current();
  Client client(loop);
  EXPECT_TRUE(co_await client.connect(address));
  const Result<OpenedVolume> killed =
      co_await client.call<&VolumeService::open_for>("v", client_name, std::string("killed"));
  EXPECT_TRUE(killed);
  if (!killed) co_return;
  RemoteExports exports(loop, address, {}, {}, outage_max_usual, client_name);
  const Result<std::shared_ptr<NbdDevice>> device = co_await exports.open("v", {});
  EXPECT_TRUE(device);
  if (!device) co_return;
  const std::vector<std::byte> earlier(4096, std::byte{1});
  const std::vector<std::byte> later(4096, std::byte{2});
  EXPECT_TRUE(co_await (*device)->write(0, later, true));
  const Result<void> late = co_await write_late(client, killed->name, earlier);
  std::vector<std::byte> found(4096);
  EXPECT_TRUE(co_await (*device)->read(0, found));
  EXPECT_EQ(found == later, safe);
  EXPECT_EQ(late.has_value(), !safe);
  if (!late) {
    EXPECT_EQ(late.error().application_code, ESTALE) << late.error().text;
  }
  // The killed process cannot open the volume again.
  const Result<OpenedVolume> again =
      co_await client.call<&VolumeService::open_for>("v", client_name, std::string("killed"));
  EXPECT_EQ(again.has_value(), !safe);
  if (!again) {
    EXPECT_EQ(again.error().application_code, ESHUTDOWN) << again.error().text;
  }
  EXPECT_TRUE(co_await (*device)->write(0, later, true));
}

TEST(NbdRemoteExports, ALateWriteOfAKilledProcessIsRefusedAfterItsSuccessorHasOpenedTheVolume) {
  const TemporaryFolder folder;
  const std::string address = "unix:" + (folder.path() / "native").string();
  MediumServer server(address);
  sync_wait(follow(address, "name", true));
}

// This is what the name is for.
TEST(NbdRemoteExports, ALateWriteOfAKilledProcessWithoutANameReplacesALaterOne) {
  const TemporaryFolder folder;
  const std::string address = "unix:" + (folder.path() / "native").string();
  MediumServer server(address);
  sync_wait(follow(address, "", false));
}

TEST(NbdRemoteExports, TheNameOfAClientIsThatOfItsAddress) {
  const TemporaryFolder one;
  const TemporaryFolder other;
  const auto at = [](const TemporaryFolder& folder, const char* file) {
    return client_name_at("unix:" + (folder.path() / file).string());
  };
  EXPECT_EQ(at(one, "nbd"), at(one, "nbd"));
  EXPECT_NE(at(one, "nbd"), "");
  EXPECT_NE(at(one, "nbd"), at(one, "nbd2"));
  EXPECT_NE(at(one, "nbd"), at(other, "nbd"));
  EXPECT_NE(client_name_at("unix:@nbd"), client_name_at("127.0.0.1:10809"));
  EXPECT_EQ(client_name_at("127.0.0.1:10809"), client_name_at("127.0.0.1:10809"));
  EXPECT_EQ(client_name_at("127.0.0.1:0"), "") << "the next process has another port";
}

// LIST waits for a server that was there.
Task<void> list_in_an_outage(std::string address) {
  Loop& loop = *Loop::current();
  RemoteExports exports(loop, address, {});
  EXPECT_FALSE(co_await exports.names({})) << "not at the start";
  std::optional<MediumServer> server(std::in_place, address);
  EXPECT_TRUE(co_await exports.names({}));
  server.reset();
  std::optional<Result<std::vector<std::string>>> listed;
  Scope tasks;
  tasks.spawn([](Exports& of, std::optional<Result<std::vector<std::string>>>& names) -> Task<void> {
    names = co_await of.names({});
  }(exports, listed));
  co_await loop.sleep(std::chrono::milliseconds(5));
  EXPECT_FALSE(listed);
  server.emplace(address);
  co_await tasks.join();
  EXPECT_EQ(**listed, std::vector<std::string>{"v"});
}

TEST(NbdRemoteExports, NamesOfVolumesWaitForTheServer) {
  const TemporaryFolder folder;
  sync_wait(list_in_an_outage("unix:" + (folder.path() / "native").string()));
}

}  // namespace
}  // namespace hawser::block::nbd
