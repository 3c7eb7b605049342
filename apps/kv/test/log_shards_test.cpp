// The logs of several shards belong together: what a crash, a full disk or another distribution of the keys leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "kv/log/log_folder.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

using ::testing::HasSubstr;

std::string key_of_shard(Store& store, unsigned shard, const std::string& prefix) {
  for (int i = 0;; ++i) {
    std::string key = prefix + std::to_string(i);
    if (store.shard_of(store.key(key).hash) == shard) return key;
  }
}

// The log of the old name's shard can be written, and that of the new name's shard cannot.
TEST(LogOfShards, ARenameWhoseCopyIsNotLoggedKeepsTheOldName) {
  for (const LogSync sync : {LogSync::always, LogSync::second, LogSync::never}) {
    const TemporaryFolder folder;
    const LogOptions log{.folder = folder.path(), .shards = {.sync = sync}};
    const std::string value(5000, 'v');
    std::string from;
    std::string to;
    {
      KvServer server({.shards = 2}, {}, &log);
      RespPeer peer(server.address());
      from = key_of_shard(server.store, 0, "from");
      to = key_of_shard(server.store, 1, "to");
      const std::string pad = key_of_shard(server.store, 1, "pad");
      EXPECT_EQ(peer.call({"SET", from, value}), "+OK\r\n");
      EXPECT_EQ(peer.call({"SET", pad, std::string(15'500, 'p')}), "+OK\r\n");
      rlimit before{};
      getrlimit(RLIMIT_FSIZE, &before);
      rlimit small = before;
      small.rlim_cur = 20'000;
      setrlimit(RLIMIT_FSIZE, &small);
      const std::string reply = peer.call({"RENAME", from, to});
      // With the copy, the shard is longer than the limit, so that it cannot be rewritten at the end either.
      server.store.holds().end();
      server.server().stop(std::chrono::milliseconds(100));
      const Result<void> closed = server.store.close_log();
      setrlimit(RLIMIT_FSIZE, &before);
      EXPECT_THAT(reply, HasSubstr("-MISCONF Errors writing to the log: cannot write to"));
      ASSERT_FALSE(closed);
      EXPECT_THAT(closed.error().text, HasSubstr("the log of shard 1 is not complete"));
      EXPECT_THAT(closed.error().text, HasSubstr("It could not be rewritten: cannot write to"));
    }
    KvServer server({.shards = 2}, {}, &log);
    RespPeer peer(server.address());
    EXPECT_EQ(peer.call({"STRLEN", from}), ":5000\r\n");
  }
}

// Clients rename keys while the server is killed. Each value is there under some name.
TEST(LogOfShards, KilledServersHaveAllValuesThatWereRenamed) {
  const TemporaryFolder folder;
  constexpr int writers = 4;
  constexpr int keys = 10;
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    KvProcess server(folder.path(), round % 2 == 0 ? "always" : "never", 2);
    ASSERT_TRUE(server.ready);
    RespPeer check(server.address());
    if (round == 0) {
      for (int i = 0; i < writers * keys; ++i) {
        EXPECT_EQ(check.call({"SET", std::to_string(i) + ":0", std::string(200, 'v')}), "+OK\r\n");
      }
    }
    // A crash between copy and removal leaves both names.
    std::vector<std::string> names(writers * keys);
    const std::string list = check.call({"KEYS", "*"});
    for (std::size_t at = list.find('$'); at != std::string::npos; at = list.find('$', at + 1)) {
      const std::size_t begin = list.find('\n', at) + 1;
      const std::string name = list.substr(begin, list.find('\r', begin) - begin);
      names[std::stoul(name)] = name;
    }
    for (const std::string& name : names) ASSERT_NE(name, "") << "round " << round;
    std::atomic<int> renamed = 0;
    std::vector<std::thread> threads;
    for (int writer = 0; writer < writers; ++writer) {
      threads.emplace_back([&, writer] {
        RespPeer peer(server.address());
        for (int i = 0;; ++i) {
          std::string& name = names[static_cast<std::size_t>(writer * keys + i % keys)];
          const std::size_t colon = name.find(':') + 1;
          const std::string next = name.substr(0, colon) + std::to_string(std::stoi(name.substr(colon)) + 1);
          if (peer.call({"RENAME", name, next}) != "+OK\r\n") return;
          name = next;
          ++renamed;
        }
      });
    }
    const int until = 100 + static_cast<int>(random() % 200);
    for (int i = 0; i < 60'000 && renamed < until; ++i) usleep(1000);
    server.end(SIGKILL);
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(renamed, until);
  }
}

// Keys have other shards after a start, so that a shard may get more of them than it has memory for.
TEST(LogOfShards, AFullStoreThatRefusesStartsAgain) {
  const TemporaryFolder folder;
  const LogOptions log{.folder = folder.path(), .shards = {.sync = LogSync::never}};
  std::string size;
  for (std::uint64_t start = 1; start <= 5; ++start) {
    KvServer server({.memory_bytes = std::size_t{4} << 20,
                     .policy = MemoryPolicy::refuse,
                     .shards = 2,
                     .secret = {start, start << 32}},
                    {}, &log);
    RespPeer peer(server.address());
    for (int i = 0; start == 1; ++i) {
      if (peer.call({"SET", "key" + std::to_string(i), std::string(500, 'v')}).starts_with('-')) break;
    }
    if (start == 1) size = peer.call({"DBSIZE"});
    EXPECT_EQ(peer.call({"DBSIZE"}), size);
    // Without memory for more, keys can still be removed.
    EXPECT_EQ(peer.call({"DEL", "key0"}), start == 1 ? ":1\r\n" : ":0\r\n");
    size = peer.call({"DBSIZE"});
  }
}

// A refused MSET leaves no trace, in the log neither: the table keeps the memory that it has taken for the new keys.
TEST(LogOfShards, ARefusedMsetKeepsALongValue) {
  for (const unsigned shards : {1U, 2U}) {
    const TemporaryFolder folder;
    const LogOptions log{.folder = folder.path(), .shards = {.sync = LogSync::never}};
    const StoreOptions options{
        .memory_bytes = shards * (std::size_t{2} << 20), .policy = MemoryPolicy::refuse, .shards = shards, .clock = [] {
          return std::int64_t{1'000'000};
        }};
    std::string written;
    {
      KvServer server(options, {}, &log);
      RespPeer peer(server.address());
      EXPECT_EQ(peer.call({"SET", "long", std::string(1'000'000, 'v'), "EX", "1000"}), "+OK\r\n");
      for (unsigned full = 0, i = 0; full < 100; ++i) {
        full += peer.call({"SET", "f" + std::to_string(i), std::string(400, 'f')}).starts_with('-') ? 1 : 0;
      }
      written = peer.call({"DBSIZE"});
      std::vector<std::string> words{"MSET", "long", "short"};
      for (int i = 0; i < 40'000; ++i) words.insert(words.end(), {"m" + std::to_string(i), std::string(30, 'm')});
      EXPECT_THAT(peer.call(words), HasSubstr("-OOM"));
      EXPECT_EQ(peer.call({"DBSIZE"}), written);
      EXPECT_EQ(peer.call({"STRLEN", "long"}), ":1000000\r\n");
      EXPECT_EQ(peer.call({"TTL", "long"}), ":1000\r\n");
      const auto value = [](char c) { return std::string(400, c); };
      EXPECT_EQ(peer.call({"MSET", "f0", value('1'), "f1", value('2'), "f0", value('3')}), "+OK\r\n");
      EXPECT_THAT(peer.call({"GET", "f0"}), HasSubstr(value('3')));
    }
    KvServer server(options, {}, &log);
    RespPeer peer(server.address());
    EXPECT_EQ(peer.call({"DBSIZE"}), written);
    EXPECT_EQ(peer.call({"STRLEN", "long"}), ":1000000\r\n");
    EXPECT_THAT(peer.call({"GET", "f0"}), HasSubstr("333"));
    EXPECT_THAT(peer.call({"GET", "f1"}), HasSubstr("222"));
  }
}

}  // namespace
}  // namespace hawser::kv
