// The append-only log: recovery, and failures of the disk.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "kv/log/log_folder.h"
#include "kv/log/log_format.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"
#include "tests/testing.h"

namespace hawser::kv {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

LogOptions in(const fs::path& folder, LogSync sync = LogSync::always, std::size_t rewrite = std::size_t{64} << 20) {
  return {.folder = folder, .shards = {.sync = sync, .rewriting = {.bytes_min = rewrite}}};
}

std::map<std::string, std::string> contents(RespPeer& peer) {
  std::map<std::string, std::string> found;
  const std::string keys = peer.call({"KEYS", "*"});
  std::size_t at = keys.find("\r\n") + 2;
  while (at < keys.size()) {
    const std::size_t line = keys.find("\r\n", at);
    const std::size_t bytes = std::stoul(keys.substr(at + 1, line - at - 1));
    const std::string key = keys.substr(line + 2, bytes);
    at = line + 2 + bytes + 2;
    found[key] = peer.call({"GET", key});
  }
  return found;
}

TEST(Log, EveryKindOfChangeIsThereAfterARestart) {
  for (const LogSync sync : {LogSync::always, LogSync::second, LogSync::never}) {
    const TemporaryFolder folder;
    std::map<std::string, std::string> before;
    const LogOptions options = in(folder.path() / "log", sync);
    unsigned shards = 2;
    {
      KvServer server({.shards = shards}, {}, &options);
      RespPeer peer(server.address());
      EXPECT_EQ(peer.call({"SET", "gone", "1"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"FLUSHALL"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"SET", "a", std::string(100'000, 'a')}), "+OK\r\n");
      EXPECT_EQ(peer.call({"APPEND", "a", "more"}), ":100004\r\n");
      EXPECT_EQ(peer.call({"INCRBY", "n", "41"}), ":41\r\n");
      EXPECT_EQ(peer.call({"INCR", "n"}), ":42\r\n");
      EXPECT_EQ(peer.call({"SETRANGE", "r", "5", "xyz"}), ":8\r\n");
      EXPECT_EQ(peer.call({"MSET", "m1", "1", "m2", "2", "m3", "3"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"DEL", "m2"}), ":1\r\n");
      EXPECT_EQ(peer.call({"SET", "t", "1", "EX", "1000"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"SET", "p", "1", "EX", "1000"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"PERSIST", "p"}), ":1\r\n");
      EXPECT_EQ(peer.call({"SET", "e", "1"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"PEXPIRE", "e", "1"}), ":1\r\n");
      EXPECT_EQ(peer.call({"GETDEL", "none"}), "$-1\r\n");
      EXPECT_EQ(peer.call({"SET", "", "the empty key"}), "+OK\r\n");
      while (peer.call({"EXISTS", "e"}) != ":0\r\n") std::this_thread::sleep_for(1ms);
      before = contents(peer);
      EXPECT_EQ(before.size(), 8U);
    }
    for (const unsigned next : {2U, 3U, 1U}) {  // Also with other numbers of shards.
      KvServer server({.shards = next}, {}, &options);
      EXPECT_EQ(server.report.cut_bytes, 0U);
      EXPECT_EQ(server.report.files, shards);
      shards = next;
      RespPeer peer(server.address());
      EXPECT_EQ(contents(peer), before);
      EXPECT_NE(peer.call({"TTL", "t"}), ":-1\r\n");
      EXPECT_EQ(peer.call({"TTL", "p"}), ":-1\r\n");
    }
    // One run is kept.
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "log"), {}), 2);
  }
}

TEST(Log, AFolderBelongsToOneProcess) {
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path());
  Store first({});
  ASSERT_TRUE(first.open_log(options));
  Store second({});
  const Result<LogReport> opened = second.open_log(options);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().text, HasSubstr("another process uses the log in " + folder.path().string()));
}

// Somebody removes the file `lock`, as of a process that has ended.
TEST(Log, AFolderBelongsToOneProcessWithoutItsLockFile) {
  const TemporaryFolder folder;
  LogOptions options = in(folder.path());
  options.shards.check_interval = 24h;  // A write alone notices that the folder of the run has another name.
  const auto start = [&] {
    Store store({});
    const Result<LogReport> opened = store.open_log(options);
    return opened ? "" : opened.error().text;
  };
  const std::string error = "another process uses the log in " + folder.path().string();
  {
    KvServer server({}, {}, &options);
    RespPeer peer(server.address());
    for (int i = 0; i < 2; ++i) {  // The second one has made the file anew.
      EXPECT_TRUE(fs::remove(folder.path() / "lock"));
      EXPECT_THAT(start(), HasSubstr(error));
    }
    EXPECT_EQ(peer.call({"SET", "key", "value"}), "+OK\r\n");
    // Under another name it is the same folder.
    fs::rename(folder.path() / "run-1", folder.path() / "run-7");
    EXPECT_TRUE(fs::remove(folder.path() / "lock"));
    EXPECT_THAT(start(), HasSubstr(error));
    fs::rename(folder.path() / "run-7", folder.path() / "run-1");
    EXPECT_EQ(peer.call({"SET", "key", "value"}), "+OK\r\n");
  }
  {
    // A process that starts has made a folder, and has not given it its name yet.
    fs::create_directory(folder.path() / "run-9.tmp");
    const Descriptor starting(open((folder.path() / "run-9.tmp").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(flock(starting.get(), LOCK_EX), 0);
    EXPECT_THAT(start(), HasSubstr(error));
  }
  EXPECT_EQ(start(), "");
  EXPECT_FALSE(fs::exists(folder.path() / "run-9.tmp"));
}

TEST(Log, ADamagedFileIsNamed) {
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path());
  {
    KvServer server({}, {}, &options);
    RespPeer peer(server.address());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(peer.call({"SET", "key" + std::to_string(i), "value"}), "+OK\r\n");
  }
  const fs::path path = folder.path() / "run-1" / "shard-0.0.log";
  ASSERT_TRUE(fs::exists(path));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(100);
    const int byte = file.get();
    file.seekp(100);
    file.put(static_cast<char>(byte ^ 0x55));
  }
  Store store({});
  const Result<LogReport> opened = store.open_log(options);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().text, HasSubstr(path.string()));
  EXPECT_THAT(opened.error().text, HasSubstr("damaged at offset"));
  EXPECT_TRUE(fs::exists(path));  // Nothing is removed.
}

// A crash, or a fault of the disk, may leave bytes behind the last complete record. They are not lost.
TEST(Log, TheEndOfAFileThatIsNotUsedIsKept) {
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path());
  const std::string end = "SET of a record that a crash has cut";
  // One more than the starts whose ends are kept.
  const std::size_t starts = LogFolder::kept_runs_max + 1;
  for (std::size_t start = 1; start <= starts; ++start) {
    {
      KvServer server({}, {}, &options);
      RespPeer peer(server.address());
      ASSERT_EQ(peer.call({"SET", "key", "value" + std::to_string(start)}), "+OK\r\n");
    }
    const std::string run = std::to_string(start * 2 - 1);
    std::ofstream(folder.path() / ("run-" + run) / "shard-0.0.log", std::ios::app | std::ios::binary) << end << start;
    KvServer server({}, {}, &options);
    EXPECT_THAT(RespPeer(server.address()).call({"GET", "key"}), HasSubstr("value" + std::to_string(start) + "\r\n"));
    const fs::path kept = folder.path() / ("cut-" + run + "-shard-0.0.log");
    ASSERT_EQ(server.report.kept, std::vector<fs::path>{kept});
    std::stringstream content;
    content << std::ifstream(kept, std::ios::binary).rdbuf();
    EXPECT_EQ(content.str(), end + std::to_string(start));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "cut-1-shard-0.0.log"));
  EXPECT_TRUE(fs::exists(folder.path() / "cut-3-shard-0.0.log"));
}

TEST(Log, MissingAndForeignFilesAreNoticed) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  const auto write = [&](const fs::path& to, unsigned shards) {
    const LogOptions options = in(to);
    KvServer server({.shards = shards}, {}, &options);
    RespPeer peer(server.address());
    for (int i = 0; i < 30; ++i) EXPECT_EQ(peer.call({"SET", "key" + std::to_string(i), "value"}), "+OK\r\n");
  };
  write(log, 3);
  write(folder.path() / "other", 3);
  write(folder.path() / "two", 2);
  const fs::path run = log / "run-1";
  // Opens a copy of the log that `change` has changed. Empty if that works.
  const auto error_after = [&](const std::function<void(const fs::path& run)>& change) {
    const fs::path copy = folder.path() / "copy";
    fs::remove_all(copy);
    fs::copy(log, copy, fs::copy_options::recursive);
    change(copy / "run-1");
    Store store({.memory_bytes = std::size_t{16} << 20});
    const Result<LogReport> opened = store.open_log(in(copy));
    EXPECT_EQ(fs::exists(copy / "run-2"), opened.has_value());
    return opened ? "" : opened.error().text;
  };
  EXPECT_EQ(error_after([](const fs::path&) {}), "");
  for (int shard = 0; shard < 3; ++shard) {
    const std::string name = "shard-" + std::to_string(shard);
    EXPECT_THAT(
        error_after([&](const fs::path& in_run) { fs::remove(in_run / (name + ".0.log")); }),
        HasSubstr("2 of 3 shards, and the file of shard " + std::to_string(shard) + " (" + name + ".*.log) is"));
  }
  const auto replaced = fs::copy_options::overwrite_existing;
  const std::string name = "shard-1.0.log";
  EXPECT_THAT(error_after([&](const fs::path& in_run) {
                fs::copy(folder.path() / "other" / "run-1" / name, in_run / name, replaced);
              }),
              HasSubstr(name + " (--log): it is the file of shard 1 of 3 of another log"));
  EXPECT_THAT(error_after([&](const fs::path& in_run) {
                fs::copy(folder.path() / "two" / "run-1" / name, in_run / name, replaced);
              }),
              HasSubstr(name + " (--log): it is the file of shard 1 of 2 of another log"));
  EXPECT_THAT(error_after([&](const fs::path& in_run) { fs::copy(in_run / "shard-0.0.log", in_run / name, replaced); }),
              HasSubstr(name + " (--log): it is the file of shard 0 of 3: restore"));
  EXPECT_THAT(error_after([&](const fs::path& in_run) { fs::copy(in_run / name, in_run / "shard-3.0.log"); }),
              HasSubstr("shard-3.0.log (--log): it is the file of shard 1 of 3: restore"));
}

TEST(Log, GrowingFilesAreRewritten) {
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path(), LogSync::never, 32 * 1024);
  std::map<std::string, std::string> before;
  {
    KvServer server({.shards = 2}, {}, &options);
    RespPeer peer(server.address());
    const auto rewrites = [&] {
      return std::min(server.store.site(0).log()->rewrites(), server.store.site(1).log()->rewrites());
    };
    // The number is read from another thread, so it may be old; it only grows.
    for (int round = 0; rewrites() < 3; ++round) {
      ASSERT_LT(round, 100'000);
      for (int i = 0; i < 50; ++i) {
        const std::string key = "key" + std::to_string(i);
        EXPECT_EQ(peer.call({"SET", key, std::string(200, 'v') + std::to_string(round)}), "+OK\r\n");
      }
      if (round % 7 == 0) {
        EXPECT_EQ(peer.call({"DEL", "key3"}), ":1\r\n");
      }
      if (round % 50 == 0) {
        EXPECT_EQ(peer.call({"FLUSHALL"}), "+OK\r\n");
      }
    }
    before = contents(peer);
  }
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 2'000'000U);
  KvServer server({.shards = 2}, {}, &options);
  RespPeer peer(server.address());
  EXPECT_EQ(contents(peer), before);
}

TEST(Log, WritesFailWhenTheFileCannotGrow) {
  const TemporaryFolder folder;
  for (const unsigned shards : {1U, 2U}) {
    LogOptions options = in(folder.path() / std::to_string(shards));
    options.shards.rewriting.repair_pause_min = options.shards.rewriting.repair_pause_max = 24h;
    KvServer server({.shards = shards}, {}, &options);
    RespPeer peer(server.address());
    EXPECT_EQ(peer.call({"SET", "good", "1"}), "+OK\r\n");
    signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    rlimit small = before;
    small.rlim_cur = 20'000;
    setrlimit(RLIMIT_FSIZE, &small);
    int acknowledged = 0;
    std::string reply;
    for (int i = 0; i < 1000; ++i) {
      reply = peer.call({"SET", "key" + std::to_string(i), std::string(500, 'v')});
      if (!reply.starts_with("+OK")) break;
      ++acknowledged;
    }
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(reply, HasSubstr("-MISCONF Errors writing to the log: cannot write to"));
    EXPECT_LT(acknowledged, 20'000 / 500 * static_cast<int>(shards));
    // The shard refuses writes until the file has been rewritten, and serves reads.
    std::size_t refused = 0;
    for (int i = 0; i < 50; ++i) refused += peer.call({"SET", "key" + std::to_string(i), "1"}).starts_with("-MISCONF");
    EXPECT_GT(refused, 0U);
    EXPECT_THAT(peer.call({"INFO"}), HasSubstr("aof_last_write_status:err"));
    EXPECT_EQ(peer.call({"GET", "good"}), "$1\r\n1\r\n");
    EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n");
    sync_wait([](std::string address, std::size_t of) -> Task<void> {
      Client link;
      const Result<void> connected = co_await link.connect(address);
      EXPECT_TRUE(connected);
      KvClient client(link, ReadPolicy::calls);
      std::size_t failed = 0;
      for (int i = 0; i < 50; ++i) {
        const std::string key = "key" + std::to_string(i);
        const auto set = co_await client.set(key, "1");
        if (!set) {
          EXPECT_THAT(set.error().text, HasSubstr("its log cannot be written"));
        }
        failed += set ? 0 : 1;
      }
      EXPECT_GT(failed, 0U);
      EXPECT_TRUE(of != 1 || failed == 50U);
    }(server.address(), shards));
  }
}

// The number after "NAME:" in the section of INFO about the log.
std::string info_field(RespPeer& peer, const std::string& name) {
  const std::string text = peer.call({"INFO", "persistence"});
  const std::size_t at = text.find("\r\n" + name + ":");
  if (at == std::string::npos) return "none";
  const std::size_t begin = at + name.size() + 3;
  return text.substr(begin, text.find('\r', begin) - begin);
}

TEST(Log, InfoShowsItsState) {
  {
    KvServer server;
    RespPeer peer(server.address());
    EXPECT_EQ(info_field(peer, "loading"), "0");
    EXPECT_EQ(info_field(peer, "aof_enabled"), "0");
    EXPECT_EQ(info_field(peer, "aof_last_write_status"), "ok");
    EXPECT_EQ(info_field(peer, "aof_current_size"), "none");
  }
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path(), LogSync::always, 64 * 1024);
  KvServer server({.shards = 2}, {}, &options);
  RespPeer peer(server.address());
  EXPECT_EQ(info_field(peer, "aof_enabled"), "1");
  EXPECT_EQ(info_field(peer, "log_fsync"), "always");
  const std::size_t empty = std::stoul(info_field(peer, "aof_current_size"));
  EXPECT_EQ(info_field(peer, "aof_base_size"), std::to_string(empty));
  EXPECT_EQ(peer.call({"SET", "key", std::string(1000, 'v')}), "+OK\r\n");
  EXPECT_GE(std::stoul(info_field(peer, "aof_current_size")), empty + 1000);  // The reply waited for it.
  EXPECT_EQ(info_field(peer, "log_rewrites"), "0");
  for (int i = 0; info_field(peer, "log_rewrites") == "0" || info_field(peer, "aof_rewrite_in_progress") != "0"; ++i) {
    ASSERT_LT(i, 100'000);
    EXPECT_EQ(peer.call({"SET", "key", std::string(1000, 'v')}), "+OK\r\n");
  }
  EXPECT_EQ(info_field(peer, "aof_last_bgrewrite_status"), "ok");
  EXPECT_EQ(info_field(peer, "aof_last_write_status"), "ok");
  EXPECT_EQ(info_field(peer, "log_shards_that_refuse_writes"), "0");
}

TEST(Log, FoldersOfOthersAreLeftAlone) {
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path());
  fs::create_directory(folder.path() / "run-3");
  std::ofstream(folder.path() / "run-3" / "results") << "x";
  fs::create_directory(folder.path() / "run-4.tmp");
  std::ofstream(folder.path() / "run-4.tmp" / "results") << "x";
  {
    Store store({});
    const Result<LogReport> opened = store.open_log(options);
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().text, HasSubstr("it has no file of a log"));
  }
  fs::rename(folder.path() / "run-3", folder.path() / "run-0");
  {
    Store store({});  // run-0 is the newest.
    EXPECT_FALSE(store.open_log(options));
  }
  fs::rename(folder.path() / "run-0", folder.path() / "mine");
  fs::create_directory_symlink("mine", folder.path() / "run-9");
  for (int i = 0; i < 2; ++i) {
    Store store({});
    const Result<LogReport> opened = store.open_log(options);
    EXPECT_TRUE(opened) << opened.error().text;
    EXPECT_TRUE(store.close_log());
    fs::create_directories(folder.path() / "run-0");
    std::ofstream(folder.path() / "run-0" / "results") << "x";
  }
  EXPECT_TRUE(fs::exists(folder.path() / "run-0" / "results"));
  EXPECT_TRUE(fs::exists(folder.path() / "mine" / "results"));
  EXPECT_TRUE(fs::exists(folder.path() / "run-4.tmp" / "results"));
  EXPECT_FALSE(fs::exists(folder.path() / "run-1"));
}

TEST(Log, HostileFilesAreRefused) {
  const auto open = [](const std::function<void(const fs::path&)>& make) {
    const TemporaryFolder folder;
    const fs::path run = folder.path() / "run-1";
    fs::create_directory(run);
    make(run / "shard-0.0.log");
    Store store({.memory_bytes = std::size_t{16} << 20});
    const Result<LogReport> opened = store.open_log(in(folder.path()));
    return opened ? "" : opened.error().text;
  };
  const auto with = [&](const EffectRecord& record) {
    return open([&](const fs::path& path) {
      std::string text = log_header({});
      append_record(text, record);
      std::ofstream(path, std::ios::binary) << text;
    });
  };
  const std::string key(Shard::key_bytes_max, 'k');
  const std::string longer(70'000, 'k');
  EXPECT_EQ(with({.kind = LogKind::set, .key = key, .value = "v", .version = 1}), "");
  EXPECT_THAT(with({.kind = LogKind::set, .key = key + "k", .version = 1}), HasSubstr("a key of 8193 bytes"));
  EXPECT_THAT(with({.kind = LogKind::set, .key = longer, .version = 1}), HasSubstr("a key of 70000 bytes"));
  EXPECT_THAT(with({.kind = LogKind::remove, .key = longer}), HasSubstr("a key of 70000 bytes"));
  EXPECT_THAT(with({.kind = LogKind::set, .key = "k", .version = UINT64_MAX}), HasSubstr("version 1844674407"));
  EXPECT_THAT(open([](const fs::path& path) { mkfifo(path.c_str(), 0600); }), HasSubstr("is not a regular file"));
  EXPECT_THAT(open([](const fs::path& path) { fs::create_directory(path); }), HasSubstr("is not a regular file"));
}

TEST(Log, ARunThatCannotBeWrittenIsRemoved) {
  const TemporaryFolder folder;
  const LogOptions options = in(folder.path());
  {
    KvServer server({}, {}, &options);
    RespPeer peer(server.address());
    EXPECT_EQ(peer.call({"SET", "key", std::string(100'000, 'v')}), "+OK\r\n");
  }
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 20'000;
  setrlimit(RLIMIT_FSIZE, &small);
  {
    Store store({});
    const Result<LogReport> opened = store.open_log(options);
    setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().text, HasSubstr("cannot write to"));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "run-2.tmp"));
  KvServer server({}, {}, &options);
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"STRLEN", "key"}), ":100000\r\n");
}

// ---- kill -9 ----

TEST(Log, KilledServersHaveEverythingThatTheyAcknowledged) {
  const TemporaryFolder folder;
  constexpr int writers = 4;
  constexpr int keys = 20;
  // The last values of each key that were acknowledged, and that were sent.
  std::array<std::array<int, keys>, writers> acknowledged{};
  std::array<std::array<int, keys>, writers> sent{};
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    KvProcess server(folder.path(), "always", 1 + static_cast<unsigned>(round) % 3);
    ASSERT_TRUE(server.ready);
    RespPeer check(server.address());
    for (int writer = 0; writer < writers; ++writer) {
      for (int key = 0; key < keys; ++key) {
        const std::string reply = check.call({"GET", std::to_string(writer) + ":" + std::to_string(key)});
        const int value = reply == "$-1\r\n" ? 0 : std::stoi(reply.substr(reply.find('\n') + 1));
        EXPECT_GE(value, acknowledged[writer][key]) << "round " << round;
        EXPECT_LE(value, sent[writer][key]) << "round " << round;
        acknowledged[writer][key] = sent[writer][key] = value;
      }
    }
    std::atomic<int> writes = 0;
    std::vector<std::thread> threads;
    for (int writer = 0; writer < writers; ++writer) {
      threads.emplace_back([&, writer] {
        RespPeer peer(server.address());
        for (int i = 0;; ++i) {
          const int key = i % keys;
          const int value = sent[writer][key] + 1;
          sent[writer][key] = value;
          const std::string name = std::to_string(writer) + ":" + std::to_string(key);
          if (peer.call({"SET", name, std::to_string(value)}) != "+OK\r\n") return;
          acknowledged[writer][key] = value;
          ++writes;
        }
      });
    }
    const int until = 200 + static_cast<int>(random() % 400);
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (writes < until && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
    server.end(SIGKILL);
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(writes, until);
  }
  // A stop keeps everything, whatever the option says.
  std::map<std::string, std::string> before;
  {
    KvProcess server(folder.path(), "never", 2);
    ASSERT_TRUE(server.ready);
    RespPeer peer(server.address());
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(peer.call({"SET", "n" + std::to_string(i), "1"}), "+OK\r\n");
    before = contents(peer);
    server.end(SIGTERM);
    EXPECT_EQ(server.status, 0);
  }
  KvProcess server(folder.path(), "second", 1);
  ASSERT_TRUE(server.ready);
  RespPeer peer(server.address());
  EXPECT_EQ(contents(peer), before);
}

}  // namespace
}  // namespace hawser::kv
