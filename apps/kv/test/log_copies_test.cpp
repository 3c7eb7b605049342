// Files of the log that somebody has copied, renamed, replaced or truncated: an answered write is not lost, or a start
// names the files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "base/temporary_folder.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

LogOptions copied_log(const std::filesystem::path& folder) {
  return {.folder = folder,
          .shards = {.sync = LogSync::always,
                     .rewriting = {.repair_pause_min = 1ms, .repair_pause_max = 1ms},
                     .check_interval = 24h}};
}

// A server whose key has the values "1", "2" and so on.
class CountedLog {
 public:
  // By default, only a write notices that a file has changed.
  explicit CountedLog(std::chrono::milliseconds check_interval = 24h, std::chrono::milliseconds repair_pause = 1ms) {
    start(check_interval, repair_pause);
  }
  std::filesystem::path run() const { return folder_.path() / "run-1"; }
  std::filesystem::path file(int number) const { return run() / ("shard-0." + std::to_string(number) + ".log"); }
  const std::filesystem::path& other() const { return other_.path(); }
  std::string write() { return peer_->call({"SET", "key", std::to_string(++value_)}); }
  // Returns when the log was written again.
  void write_until_accepted() {
    const auto end = std::chrono::steady_clock::now() + 100s;
    while (write() != "+OK\r\n") ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  // Starts a store with the files that a kill leaves now. The error if it does not start.
  std::string start_after_a_kill(const std::function<void(const std::filesystem::path& run)>& change = {}) const {
    const TemporaryFolder copy;
    std::filesystem::copy(folder_.path(), copy.path(), std::filesystem::copy_options::recursive);
    if (change) change(copy.path() / "run-1");
    Store store({.memory_bytes = std::size_t{16} << 20});
    const Result<LogReport> opened = store.open_log(copied_log(copy.path()));
    if (!opened) return opened.error().text;
    Entry* const entry = store.site(0).shard().find(store.key("key"), never_expired);
    return entry == nullptr ? "none" : std::string(entry->value());
  }
  // Returns when it was written again so many times, without a write.
  void wait_for_rewrites(int rewrites) {
    const auto end = std::chrono::steady_clock::now() + 100s;
    const std::string line = "log_rewrites:" + std::to_string(rewrites) + "\r\n";
    while (!peer_->call({"INFO", "persistence"}).contains(line)) ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  std::string value() const { return std::to_string(value_); }
  void stop() { server_.reset(); }

 private:
  void start(std::chrono::milliseconds check_interval, std::chrono::milliseconds repair_pause) {
    LogOptions options = copied_log(folder_.path());
    options.shards.check_interval = check_interval;
    options.shards.rewriting.repair_pause_min = options.shards.rewriting.repair_pause_max = repair_pause;
    server_ = std::make_unique<KvServer>(StoreOptions{}, ServerOptions{}, &options);
    peer_ = std::make_unique<RespPeer>(server_->address());
    EXPECT_EQ(write(), "+OK\r\n");
  }

  const TemporaryFolder folder_;
  const TemporaryFolder other_;
  std::unique_ptr<KvServer> server_;
  std::unique_ptr<RespPeer> peer_;
  int value_ = 0;
};

TEST(LogCopies, AFileThatWasRenamedToALargerNumberDoesNotCount) {
  CountedLog log;
  std::filesystem::rename(log.file(0), log.file(9));
  EXPECT_THAT(log.write(), HasSubstr("-MISCONF Errors writing to the log: "));
  log.write_until_accepted();
  EXPECT_TRUE(std::filesystem::exists(log.file(9)));
  EXPECT_TRUE(std::filesystem::exists(log.file(10)));
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  // The newer one has a smaller number now.
  std::filesystem::rename(log.file(9), log.file(20));
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  std::filesystem::remove(log.file(10));
  log.write_until_accepted();
  EXPECT_TRUE(std::filesystem::exists(log.file(21)));
  log.stop();
  EXPECT_EQ(log.start_after_a_kill(), log.value());
}

TEST(LogCopies, ACopyDoesNotCount) {
  CountedLog log;
  std::filesystem::copy(log.file(0), log.file(9));
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  EXPECT_EQ(log.write(), "+OK\r\n");
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  // A copy of an earlier file, whose number is larger than that of the one that is written.
  std::filesystem::rename(log.file(9), log.other() / "copy");
  std::filesystem::remove(log.file(0));
  log.write_until_accepted();
  std::filesystem::rename(log.other() / "copy", log.file(9));
  EXPECT_EQ(log.write(), "+OK\r\n");
  EXPECT_EQ(log.start_after_a_kill(), log.value());
}

TEST(LogCopies, AStartNamesTheFilesOfWhichItIsNotKnownWhichOneCounts) {
  CountedLog log;
  const CountedLog another;
  EXPECT_EQ(log.write(), "+OK\r\n");
  const auto both = [](const std::string& what) {
    return AllOf(HasSubstr("shard-0.0.log"), HasSubstr("shard-0.9.log"), HasSubstr(what),
                 HasSubstr(": move the one that is not to count out of the folder"));
  };
  EXPECT_THAT(log.start_after_a_kill([](const std::filesystem::path& run) {
    std::filesystem::copy(run / "shard-0.0.log", run / "shard-0.9.log");
    std::filesystem::resize_file(run / "shard-0.9.log", 100);
    std::ofstream(run / "shard-0.9.log", std::ios::app) << "other";
  }),
              both("are copies of one file and differ at offset 10"));
  EXPECT_THAT(log.start_after_a_kill([&](const std::filesystem::path& run) {
    std::filesystem::copy(another.file(0), run / "shard-0.9.log");
  }),
              both("shard 0 of 1 of another log"));
  EXPECT_THAT(
      log.start_after_a_kill([&](const std::filesystem::path& run) { std::ofstream(run / "shard-0.9.log") << "text"; }),
      both("does not begin with HWKVLOG"));
}

// Somebody has given a name of a log file to the file that was to take the place of that of the shard.
TEST(LogCopies, AFileThatIsNotCompleteDoesNotTakeThePlaceOfOthers) {
  CountedLog log;
  std::filesystem::copy(log.file(0), log.other() / "first");
  std::filesystem::remove(log.file(0));
  log.write_until_accepted();
  const auto place = [&](const std::filesystem::path& run) {
    std::filesystem::rename(run / "shard-0.1.log", run / "shard-0.9.log");
    std::filesystem::resize_file(run / "shard-0.9.log", 52);
    std::filesystem::copy(log.other() / "first", run / "shard-0.0.log");
  };
  EXPECT_THAT(log.start_after_a_kill(place),
              AllOf(HasSubstr("shard-0.9.log: it is the newest file of the shard and is not complete. The folder has "),
                    HasSubstr("shard-0.0.log, too: move the one that is not to count out of the folder")));
  // A newer one is there.
  EXPECT_EQ(log.start_after_a_kill([&](const std::filesystem::path& run) {
    std::filesystem::copy(log.other() / "first", run / "shard-0.9.log");
    std::filesystem::resize_file(run / "shard-0.9.log", 52);
  }),
            log.value());
}

TEST(LogCopies, AStartNamesTheFoldersOfWhichItIsNotKnownWhichOneCounts) {
  const TemporaryFolder folder;
  const auto start = [&] {
    Store store({.memory_bytes = std::size_t{16} << 20});
    const Result<LogReport> opened = store.open_log(copied_log(folder.path()));
    return opened ? "" : opened.error().text;
  };
  const auto copy = [&](const std::string& from, const std::string& to) {
    std::filesystem::copy(folder.path() / from, folder.path() / to);
  };
  const std::string remedy = ": move the one that is not to count out of the folder";
  EXPECT_EQ(start(), "");
  copy("run-1", "run-7");
  EXPECT_THAT(start(), AllOf(HasSubstr("run-7 (--log)"), HasSubstr("run-1 is a copy of it" + remedy)));
  std::filesystem::rename(folder.path() / "run-7", folder.path() / "backup");
  EXPECT_EQ(start(), "");
  copy("backup", "run-8");
  EXPECT_THAT(start(), AllOf(HasSubstr("run-8 (--log)"), HasSubstr("run-2 was written later" + remedy)));
  std::filesystem::remove_all(folder.path() / "run-8");
  // They have one number.
  copy("backup", "run-02");
  EXPECT_THAT(start(), AllOf(HasSubstr("run-2"), HasSubstr("run-02"), HasSubstr(" is the same" + remedy)));
  std::filesystem::remove_all(folder.path() / "run-02");
  // A crash leaves the run before.
  copy("backup", "run-1");
  EXPECT_EQ(start(), "");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run-1"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run-3"));
}

TEST(LogCopies, AFileThatWasTruncatedOrExtendedIsWrittenAgain) {
  CountedLog log;
  std::filesystem::resize_file(log.file(0), 0);
  EXPECT_THAT(log.write(), HasSubstr(" were written: it has been changed"));
  log.write_until_accepted();
  EXPECT_FALSE(std::filesystem::exists(log.file(0))) << "it is a file of the server";
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  std::ofstream(log.file(1), std::ios::app) << "text";
  EXPECT_THAT(log.write(), HasSubstr(" were written: it has been changed"));
  log.write_until_accepted();
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  // The stop notices it.
  std::filesystem::resize_file(log.file(2), 60);
  log.stop();
  EXPECT_EQ(log.start_after_a_kill(), log.value());
}

// A kill comes before the next write.
TEST(LogCopies, AChangeIsNoticedWithoutAWriteAndRepairedAtOnce) {
  CountedLog log(1ms, 24h);
  std::filesystem::resize_file(log.file(0), 0);
  log.wait_for_rewrites(1);
  EXPECT_EQ(log.start_after_a_kill(), log.value());
  EXPECT_EQ(log.write(), "+OK\r\n");
  // The second one within the pause waits for it, and the stop does not.
  std::filesystem::remove(log.file(1));
  log.stop();
  EXPECT_EQ(log.start_after_a_kill(), log.value());
}

// Somebody has moved the folder away, and another server uses one that has got its name.
TEST(LogCopies, AFolderThatWasReplacedIsNotWrittenTo) {
  const TemporaryFolder above;
  const std::filesystem::path folder = above.path() / "log";
  const LogOptions options = copied_log(folder);
  KvServer first({}, {}, &options);
  RespPeer peer(first.address());
  EXPECT_EQ(peer.call({"SET", "key", "first"}), "+OK\r\n");
  std::filesystem::rename(folder, above.path() / "moved");
  {
    KvServer second({}, {}, &options);
    RespPeer other(second.address());
    EXPECT_EQ(other.call({"SET", "key", "second"}), "+OK\r\n");
    EXPECT_THAT(peer.call({"SET", "key", "refused"}), HasSubstr("-MISCONF Errors writing to the log: "));
    first.store.holds().end();
    first.server().stop(100ms);
    const Result<void> closed = first.store.close_log();
    ASSERT_FALSE(closed);
    EXPECT_THAT(closed.error().text, HasSubstr("the folder " + (folder / "run-1").string() + " has been replaced"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "run-1"), {}), 1);
    EXPECT_EQ(other.call({"SET", "key", "third"}), "+OK\r\n");
  }
  KvServer third({}, {}, &options);
  RespPeer reader(third.address());
  EXPECT_EQ(reader.call({"GET", "key"}), "$5\r\nthird\r\n");
}

}  // namespace
}  // namespace hawser::kv
