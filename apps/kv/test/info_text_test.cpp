#include "kv/info_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

// The titles of a reply of INFO.
std::vector<std::string> titles(std::string_view reply) {
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = reply.find("# ", at)) != std::string_view::npos; at += 2) {
    found.emplace_back(reply.substr(at + 2, reply.find("\r\n", at) - at - 2));
  }
  return found;
}

TEST(Info, HasTheSectionsThatAreRequested) {
  KvServer server({.shards = 2});
  RespPeer peer(server.address());
  const std::vector<std::string> all{"Server",      "Clients", "Memory",  "Persistence", "Stats",
                                     "Replication", "CPU",     "Cluster", "Shards",      "Keyspace"};
  EXPECT_EQ(titles(peer.call({"INFO"})), all);
  for (const char* const word : {"all", "Default", "EVERYTHING"}) {
    EXPECT_EQ(titles(peer.call({"INFO", word})), all) << word;
  }
  EXPECT_EQ(titles(peer.call({"INFO", "KeySpace", "cpu", "nothing"})), (std::vector<std::string>{"CPU", "Keyspace"}));
  EXPECT_EQ(peer.call({"INFO", "cluster", "replication"}),
            "$102\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n\r\n"
            "# Cluster\r\ncluster_enabled:0\r\n\r\n");
  EXPECT_EQ(peer.call({"INFO", "nothing"}), "$0\r\n\r\n");
}

TEST(Info, AddsUpTheShards) {
  KvServer server({.shards = 3});
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"INFO", "keyspace"}), "$12\r\n# Keyspace\r\n\r\n") << "no keys";
  for (int i = 0; i < 20; ++i) ASSERT_EQ(peer.call({"SET", std::to_string(i), "v"}), "+OK\r\n");
  ASSERT_EQ(peer.call({"EXPIRE", "7", "1000"}), ":1\r\n");
  ASSERT_EQ(peer.call({"MGET", "0", "1", "2", "3", "absent"}),
            "*5\r\n$1\r\nv\r\n$1\r\nv\r\n$1\r\nv\r\n$1\r\nv\r\n$-1\r\n");
  EXPECT_THAT(peer.call({"INFO", "keyspace"}), testing::HasSubstr("db0:keys=20,expires=1,avg_ttl=0\r\n"));
  const std::string stats = peer.call({"INFO", "stats"});
  EXPECT_THAT(stats, testing::HasSubstr("keyspace_hits:4\r\nkeyspace_misses:1\r\n"));
  const std::string shards = peer.call({"INFO", "shards"});
  for (const char* const name : {"shard0:keys=", "shard1:keys=", "shard2:keys="}) {
    EXPECT_THAT(shards, testing::HasSubstr(name));
  }
  EXPECT_THAT(shards, testing::Not(testing::HasSubstr("shard3")));
}

// Times to live are those of the system's clock, the uptime is not.
TEST(Info, TheUptimeDoesNotFollowAStepOfTheClock) {
  constexpr std::int64_t day = std::chrono::milliseconds(std::chrono::days(1)).count();
  std::atomic<std::int64_t> now = 10 * day;
  KvServer server({.clock = [&now] { return now.load(); }});
  RespPeer peer(server.address());
  ASSERT_EQ(peer.call({"SET", "key", "v", "EX", "60"}), "+OK\r\n");
  EXPECT_THAT(peer.call({"INFO", "server"}), testing::HasSubstr("uptime_in_days:0\r\n"));
  now += 2 * day;
  EXPECT_EQ(peer.call({"GET", "key"}), "$-1\r\n");
  EXPECT_THAT(peer.call({"INFO", "server"}), testing::HasSubstr("uptime_in_days:0\r\n"));
}

}  // namespace
}  // namespace hawser::kv
