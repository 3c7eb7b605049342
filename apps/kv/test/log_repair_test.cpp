// A disk that is full or fails, and works again later. What it has after an error is not known, so the log is written
// anew from memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"
#include "kv/test/sync_hook.h"

namespace hawser::kv {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

// A file with the keys of RefusedWriter is longer, and one with those of one of two shards is not.
constexpr rlim_t limit_bytes = 20'000;

// While it exists, files of a process, by default of this one, cannot get longer.
class FileLimit {
 public:
  explicit FileLimit(pid_t process = 0) : process_(process) {
    signal(SIGXFSZ, SIG_IGN);
    prlimit(process_, RLIMIT_FSIZE, nullptr, &before_);
    const rlimit small{.rlim_cur = limit_bytes, .rlim_max = before_.rlim_max};
    prlimit(process_, RLIMIT_FSIZE, &small, nullptr);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() { prlimit(process_, RLIMIT_FSIZE, &before_, nullptr); }

 private:
  const pid_t process_;
  rlimit before_{};
};

LogOptions repaired_log(const files::path& folder, LogSync sync, std::chrono::milliseconds pause) {
  return {
      .folder = folder,
      .shards = {
          .sync = sync, .rewriting = {.repair_pause_min = pause, .repair_pause_max = pause}, .check_interval = 24h}};
}

// A client that writes, and knows the values that each key may have: the last one that was accepted, and those that
// were refused later, which may have been executed.
class RefusedWriter {
 public:
  explicit RefusedWriter(const std::string& address) : peer_(address) {}

  // Returns true if the write was accepted.
  bool write() {
    const std::string key = "key" + std::to_string(writes_ % 40);
    const std::string value = std::to_string(writes_++) + std::string(500, 'v');
    const std::string reply = peer_.call({"SET", key, value});
    if (reply == "+OK\r\n") {
      expected_[key] = {value};
      return true;
    }
    EXPECT_THAT(reply, HasSubstr("-MISCONF Errors writing to the log: "));
    expected_[key].push_back(value);
    return false;
  }
  // Writes until one is refused.
  void write_until_refused() {
    const auto end = std::chrono::steady_clock::now() + 100s;
    while (write()) ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  // Writes until no shard refuses, and all keys have been written.
  void write_until_accepted() {
    const auto end = std::chrono::steady_clock::now() + 100s;
    for (int accepted = 0; accepted < 40; accepted = write() ? accepted + 1 : 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
  }
  // Returns when the log has been rewritten. A shard whose log has failed may not know that when it accepts a write.
  void wait_until_repaired() {
    const auto end = std::chrono::steady_clock::now() + 100s;
    while (peer_.call({"INFO", "persistence"}).find("log_shards_that_refuse_writes:0") == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
  }
  void expect_values(RespPeer& of) const {
    for (const auto& [key, values] : expected_) {
      const std::string reply = of.call({"GET", key});
      EXPECT_THAT(values, Contains(reply.substr(reply.find('\n') + 1, reply.size() - reply.find('\n') - 3))) << key;
    }
  }
  // Starts a store with the files of that folder.
  void expect_values_in(const files::path& folder) const {
    const LogOptions log = repaired_log(folder, LogSync::always, 1s);
    KvServer server({}, {}, &log);
    RespPeer reader(server.address());
    expect_values(reader);
  }

 private:
  RespPeer peer_;
  int writes_ = 0;
  std::map<std::string, std::vector<std::string>> expected_;
};

// The files that the next rewritings make.
std::vector<files::path> next_log_files(const files::path& folder) {
  std::vector<files::path> next;
  for (const auto& entry : files::recursive_directory_iterator(folder)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("shard-") || !name.ends_with(".log")) continue;
    const std::size_t dot = name.find('.') + 1;
    name = name.substr(0, dot) + std::to_string(std::stoull(name.substr(dot)) + 1) + ".log";
    next.push_back(entry.path().parent_path() / name);
  }
  return next;
}

// Starts a store with the files that a kill leaves now, if nobody writes.
void expect_values_after_a_kill(const RefusedWriter& writer, const files::path& folder) {
  const TemporaryFolder copy;
  files::copy(folder, copy.path(), files::copy_options::recursive);
  writer.expect_values_in(copy.path());
}

TEST(LogRepair, WritesAreAcceptedAgainWhenTheDiskIsNoLongerFull) {
  for (const unsigned shards : {1U, 2U}) {
    for (const LogSync sync : {LogSync::always, LogSync::second, LogSync::never}) {
      const TemporaryFolder folder;
      const LogOptions options = repaired_log(folder.path(), sync, 1ms);
      auto server = std::make_unique<KvServer>(StoreOptions{.shards = shards}, ServerOptions{}, &options);
      RefusedWriter writer(server->address());
      for (int round = 0; round < 2; ++round) {
        {
          const FileLimit full;
          writer.write_until_refused();
        }
        writer.write_until_accepted();
      }
      writer.wait_until_repaired();
      if (sync == LogSync::always) expect_values_after_a_kill(writer, folder.path());
      server.reset();
      writer.expect_values_in(folder.path());
    }
  }
}

TEST(LogRepair, WritesAreAcceptedAgainWhenSyncsSucceedAgain) {
  const TemporaryFolder folder;
  const LogOptions options = repaired_log(folder.path(), LogSync::always, 1ms);
  auto server = std::make_unique<KvServer>(StoreOptions{.shards = 2}, ServerOptions{}, &options);
  RefusedWriter writer(server->address());
  writer.write_until_accepted();
  {
    const SyncHook failing([](int) { return EIO; });
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(writer.write());
  }
  writer.write_until_accepted();
  // The new file cannot be made, and then not get its name.
  for (const std::string suffix : {".tmp", ""}) {
    writer.wait_until_repaired();
    const std::vector<files::path> taken = next_log_files(folder.path());
    for (files::path path : taken) files::create_directories((path += suffix) / "occupied");
    {
      const SyncHook failing([](int) { return EIO; });
      EXPECT_FALSE(writer.write());
    }
    writer.write_until_refused();
    for (files::path path : taken) files::remove_all(path += suffix);
    writer.write_until_accepted();
  }
  writer.wait_until_repaired();
  expect_values_after_a_kill(writer, folder.path());
  server.reset();
  writer.expect_values_in(folder.path());
}

// Each sync fails with some probability, also those of the rewritings.
TEST(LogRepair, NothingThatWasAnsweredIsLostWhenSyncsFailNowAndThen) {
  const TemporaryFolder folder;
  const LogOptions options = repaired_log(folder.path(), LogSync::always, 1ms);
  auto server = std::make_unique<KvServer>(StoreOptions{.shards = 2}, ServerOptions{}, &options);
  RefusedWriter writer(server->address());
  {
    std::mt19937 random(3);
    const SyncHook failing([&](int) { return random() % 6 == 0 ? EIO : 0; });
    const auto end = std::chrono::steady_clock::now() + 100s;
    for (int accepted = 0; accepted < 60; accepted += writer.write() ? 1 : 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
  }
  writer.write_until_accepted();
  writer.wait_until_repaired();
  EXPECT_EQ(next_log_files(folder.path()).size(), 2U) << "one file of each shard is left";
  expect_values_after_a_kill(writer, folder.path());
  server.reset();
  writer.expect_values_in(folder.path());
}

TEST(LogRepair, AStopRewritesALogThatHasFailed) {
  for (const LogSync sync : {LogSync::always, LogSync::second, LogSync::never}) {
    const TemporaryFolder folder;
    const LogOptions options = repaired_log(folder.path(), sync, 24h);
    auto server = std::make_unique<KvServer>(StoreOptions{.shards = 2}, ServerOptions{}, &options);
    RefusedWriter writer(server->address());
    writer.write_until_accepted();
    {
      const FileLimit full;
      writer.write_until_refused();
    }
    for (int i = 0; i < 40; ++i) writer.write();
    server.reset();
    writer.expect_values_in(folder.path());
  }
}

// With `never`, the stop is the first to sync.
TEST(LogRepair, AStopRewritesALogWhoseLastSyncFails) {
  const TemporaryFolder folder;
  const LogOptions options = repaired_log(folder.path(), LogSync::never, 24h);
  auto server = std::make_unique<KvServer>(StoreOptions{}, ServerOptions{}, &options);
  RefusedWriter writer(server->address());
  writer.write_until_accepted();
  const ShardLog& log = *server->store.site(0).log();
  {
    int syncs = 0;
    const SyncHook once([&](int) { return syncs++ == 0 ? EIO : 0; });
    server->store.holds().end();
    server->server().stop(100ms);
    const Result<void> closed = server->store.close_log();
    EXPECT_TRUE(closed) << (closed ? "" : closed.error().text);
    EXPECT_EQ(log.rewrites(), 1U);
  }
  server.reset();
  writer.expect_values_in(folder.path());
}

// Each sync of a start and of the stop behind it fails once. A record that a crash has cut is kept by the start.
TEST(LogRepair, AStartWhoseSyncFailsLosesNothing) {
  const TemporaryFolder folder;
  const LogOptions options = repaired_log(folder.path(), LogSync::always, 1ms);
  auto server = std::make_unique<KvServer>(StoreOptions{}, ServerOptions{}, &options);
  RefusedWriter writer(server->address());
  writer.write_until_accepted();
  server.reset();
  int failed = 0;
  for (bool reached = true; reached; ++failed) {
    ASSERT_LT(failed, 100);
    for (const auto& entry : files::recursive_directory_iterator(folder.path())) {
      if (entry.path().filename() == "shard-0.0.log") std::ofstream(entry.path(), std::ios::app) << "x";
    }
    int syncs = 0;
    {
      const SyncHook once([&](int) { return syncs++ == failed ? EIO : 0; });
      Store store({.shards = 2});
      const Result<LogReport> opened = store.open_log(options);
      EXPECT_TRUE(opened || syncs > failed);
      EXPECT_TRUE(store.close_log());
    }
    reached = syncs > failed;
    writer.expect_values_in(folder.path());
  }
  EXPECT_GT(failed, 6) << "of the tail, two files and their markers, and two folders";
}

// The file of the repair does not reach the disk either. Keys expire meanwhile, which is not logged: nothing waits in
// memory for the writer.
TEST(LogRepair, ReadsAndExpiryGoOnWhileARepairDoesNotReachTheDisk) {
  const TemporaryFolder folder;
  LogOptions options = repaired_log(folder.path(), LogSync::always, 1ms);
  options.shards.held_bytes_max = 4096;
  std::atomic<std::int64_t> now = 1'000'000;
  auto server =
      std::make_unique<KvServer>(StoreOptions{.clock = [&] { return now.load(); }}, ServerOptions{}, &options);
  RespPeer peer(server->address());
  EXPECT_EQ(peer.call({"SET", "kept", "1"}), "+OK\r\n");
  constexpr int expiring = 200;
  for (int i = 0; i < expiring; ++i) {
    EXPECT_EQ(peer.call({"SET", std::string(100, 'k') + std::to_string(i), "1", "EX", "10"}), "+OK\r\n");
  }
  const auto end = std::chrono::steady_clock::now() + 100s;
  {
    std::promise<void> hangs;
    std::promise<void> works;
    int syncs = 0;
    const SyncHook hook([&](int) {
      if (++syncs == 2) {
        hangs.set_value();
        works.get_future().wait();
      }
      return syncs == 1 ? EIO : 0;
    });
    EXPECT_THAT(peer.call({"SET", "refused", "1"}), HasSubstr("-MISCONF Errors writing to the log: "));
    EXPECT_EQ(hangs.get_future().wait_until(end), std::future_status::ready);
    now += 11'000;
    std::string size;
    do size = peer.call({"DBSIZE"});
    while (size != ":2\r\n" && !size.empty() && std::chrono::steady_clock::now() < end);
    EXPECT_EQ(size, ":2\r\n");
    EXPECT_EQ(peer.call({"GET", "kept"}), "$1\r\n1\r\n");
    works.set_value();
  }
  while (peer.call({"SET", "later", "1"}) != "+OK\r\n") ASSERT_LT(std::chrono::steady_clock::now(), end);
  server.reset();
  KvServer next(StoreOptions{.clock = [&] { return now.load(); }}, ServerOptions{}, &options);
  RespPeer reader(next.address());
  EXPECT_EQ(reader.call({"GET", "kept"}), "$1\r\n1\r\n");
  EXPECT_EQ(reader.call({"GET", "later"}), "$1\r\n1\r\n");
}

// The second one has another name, that of a backup. A start would not find it either.
TEST(LogRepair, AFileThatWasMovedOrReplacedIsWrittenAgain) {
  const TemporaryFolder folder;
  const TemporaryFolder backup;
  const LogOptions options = repaired_log(folder.path(), LogSync::always, 1ms);
  auto server = std::make_unique<KvServer>(StoreOptions{}, ServerOptions{}, &options);
  RefusedWriter writer(server->address());
  writer.write_until_accepted();
  const files::path run = folder.path() / "run-1";
  files::rename(run / "shard-0.0.log", backup.path() / "moved");
  EXPECT_FALSE(writer.write());
  writer.write_until_accepted();
  writer.wait_until_repaired();
  files::create_hard_link(run / "shard-0.1.log", backup.path() / "linked");
  EXPECT_TRUE(writer.write());
  EXPECT_TRUE(files::remove(run / "shard-0.1.log"));
  EXPECT_FALSE(writer.write());
  writer.write_until_accepted();
  writer.wait_until_repaired();
  files::copy_file(run / "shard-0.2.log", backup.path() / "copy");
  files::rename(backup.path() / "copy", run / "shard-0.2.log");
  EXPECT_FALSE(writer.write());
  writer.write_until_accepted();
  writer.wait_until_repaired();
  EXPECT_TRUE(files::exists(run / "shard-0.2.log")) << "it is not a file of the server";
  expect_values_after_a_kill(writer, folder.path());
  server.reset();
  writer.expect_values_in(folder.path());
}

TEST(LogRepair, AFileThatWasRemovedIsWrittenAgain) {
  const TemporaryFolder folder;
  const LogOptions options = repaired_log(folder.path(), LogSync::always, 1ms);
  auto server = std::make_unique<KvServer>(StoreOptions{}, ServerOptions{}, &options);
  RefusedWriter writer(server->address());
  writer.write_until_accepted();
  EXPECT_TRUE(files::remove(folder.path() / "run-1" / "shard-0.0.log"));
  EXPECT_FALSE(writer.write());
  writer.write_until_accepted();
  writer.wait_until_repaired();
  expect_values_after_a_kill(writer, folder.path());
  // The stop notices it, also if there was no write.
  EXPECT_TRUE(files::remove(folder.path() / "run-1" / "shard-0.1.log"));
  server.reset();
  writer.expect_values_in(folder.path());
}

TEST(LogRepair, AStopWithoutTheFolderFails) {
  const TemporaryFolder folder;
  const LogOptions options = repaired_log(folder.path(), LogSync::never, 1ms);
  KvServer server({.shards = 2}, {}, &options);
  files::remove_all(folder.path() / "run-1");
  server.store.holds().end();
  server.server().stop(100ms);
  const Result<void> closed = server.store.close_log();
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().text, HasSubstr("has been removed"));
  EXPECT_THAT(closed.error().text, HasSubstr("It could not be rewritten: cannot create"));
}

TEST(LogRepair, AProgramWhoseLogIsNotCompleteFails) {
  for (const bool full : {true, false}) {
    const TemporaryFolder folder;
    KvProcess server(folder.path(), "always", 1);
    ASSERT_TRUE(server.ready);
    RefusedWriter writer(server.address());
    writer.write_until_accepted();
    auto limit = std::make_unique<FileLimit>(server.process());
    writer.write_until_refused();
    if (!full) limit.reset();
    server.end(SIGTERM);
    EXPECT_TRUE(WIFEXITED(server.status));
    EXPECT_EQ(WEXITSTATUS(server.status), full ? 1 : 0);
    limit.reset();
    KvProcess next(folder.path(), "always", 1);
    ASSERT_TRUE(next.ready);
    RespPeer reader(next.address());
    writer.expect_values(reader);
  }
}

}  // namespace
}  // namespace hawser::kv
