#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "kv/test/resp_peer.h"
#include "tests/testing.h"

// Clients that attack the server while another is served.
namespace hawser::kv {
namespace {

TEST(Resp, AnnouncedBytesCostNothing) {
  KvServer server({.value_bytes_max = std::size_t{1} << 30}, {.message_bytes_max = (std::size_t{1} << 30)});
  std::vector<std::unique_ptr<RespPeer>> peers;
  for (int i = 0; i < 20; ++i) {
    peers.push_back(std::make_unique<RespPeer>(server.address()));
    peers.back()->send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1073741824\r\nxyz");
    peers.back()->send("");
  }
  RespPeer other(server.address());
  EXPECT_EQ(other.call({"SET", "b", "1"}), "+OK\r\n");
  // Each connection holds a small block.
  EXPECT_LE(server.server().counters().receive_bytes, 20U * 64 * 1024);
}

TEST(Resp, LimitsOfRequests) {
  KvServer server({.value_bytes_max = 10'000});
  const auto answer = [&](const std::string& bytes) {
    RespPeer peer(server.address());
    peer.send(bytes);
    return peer.rest();
  };
  EXPECT_EQ(answer("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$10001\r\n"), "-ERR Protocol error: invalid bulk length\r\n");
  EXPECT_EQ(answer("*1048577\r\n"), "-ERR Protocol error: invalid multibulk length\r\n");
  EXPECT_EQ(answer("PING " + std::string(100'000, 'x')), "-ERR Protocol error: too big inline request\r\n");
  EXPECT_EQ(answer("*" + std::string(100'000, '1')), "-ERR Protocol error: too big mbulk count string\r\n");
  EXPECT_EQ(answer("*1\r\n$" + std::string(100'000, '1')), "-ERR Protocol error: too big bulk count string\r\n");
  RespPeer peer(server.address());
  EXPECT_TRUE(peer.call({"SET", std::string(9000, 'k'), "1"}).starts_with("-ERR the key has 9000 bytes"));
  EXPECT_EQ(peer.call({"SET", "a", std::string(10'000, 'v')}), "+OK\r\n");
  EXPECT_TRUE(peer.call({"APPEND", "a", "v"}).starts_with("-ERR string exceeds"));
  EXPECT_TRUE(peer.call({"SETRANGE", "a", "9223372036854775807", "v"}).starts_with("-ERR string exceeds"));
}

// A client whose lengths are wrong stores nothing, and no part of an argument becomes a command.
TEST(Resp, ArgumentsEndWithCrlf) {
  KvServer server;
  RespPeer other(server.address());
  for (const std::string bytes :
       {"$5\r\nvalueSET b 1\r\n", "$5\r\nvalue\rx", "$5\r\nvaluex\n", "$5\r\nvalue\n\r", "$0\r\nSET b 1\r\n"}) {
    RespPeer peer(server.address());
    peer.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n" + bytes);
    EXPECT_EQ(peer.rest(), "-ERR Protocol error: an argument does not end with CRLF\r\n") << bytes;
    EXPECT_EQ(other.call({"EXISTS", "a", "b"}), ":0\r\n") << bytes;
  }
}

TEST(Resp, AClientThatDoesNotReadIsNotReadEither) {
  KvServer server({}, {.send_backlog_bytes_max = 1 << 20});
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"SET", "a", std::string(100'000, 'v')}), "+OK\r\n");
  // 2,000 replies of 100 KB: 200 MB, of which the server may hold about 1 MiB.
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += request({"GET", "a"});
  std::thread sender([&] { peer.send(bytes); });
  RespPeer other(server.address());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(other.call({"SET", "b", "1"}), "+OK\r\n");
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(peer.receive().size(), 100'000U + 11);
  sender.join();
}

// Replies of other shards wait there until the client has read earlier ones.
TEST(Resp, LongRepliesOfOtherShardsDoNotPileUp) {
  KvServer server({.shards = 3}, {.send_backlog_bytes_max = 1 << 20});
  RespPeer peer(server.address());
  std::string bytes;
  for (int key = 0; key < 6; ++key) {
    EXPECT_EQ(peer.call({"SET", std::to_string(key), std::string(100'000, 'v')}), "+OK\r\n");
    for (int i = 0; i < 1000; ++i) bytes += request({"GET", std::to_string(key)});
  }
  std::thread sender([&] { peer.send(bytes); });
  RespPeer other(server.address());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(other.call({"SET", "b" + std::to_string(i), "1"}), "+OK\r\n");
    EXPECT_LE(server.server().counters().receive_bytes, 8U << 20);
  }
  for (int i = 0; i < 6000; ++i) ASSERT_EQ(peer.receive().size(), 100'000U + 11);
  sender.join();
}

TEST(Resp, PatternsThatTakeLongAreBounded) {
  KvServer server;
  RespPeer peer(server.address());
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(peer.call({"SET", std::string(8000, 'a') + std::to_string(i), "1"}), "+OK\r\n");
  }
  const std::string pattern = "*[" + std::string(8000, 'b') + "]";
  EXPECT_EQ(peer.call({"KEYS", pattern}), "-ERR the pattern takes too long for so many keys: use SCAN\r\n");
  EXPECT_TRUE(peer.call({"SCAN", "0", "COUNT", "10000", "MATCH", pattern}).ends_with("*0\r\n"));
  for (const std::string command : {"KEYS", "SCAN"}) {
    std::vector<std::string> words = {command, std::string(10'000, '*')};
    if (command == "SCAN") words.insert(words.begin() + 1, {"0", "MATCH"});
    EXPECT_EQ(peer.call(words), "-ERR the pattern has 10000 bytes, and at most 8192 are allowed\r\n");
  }
  EXPECT_TRUE(peer.call({"KEYS", "*19"}).starts_with("*1\r\n"));
}

TEST(Resp, WritesOfAConnectionThatHasEndedAreExecuted) {
  KvServer server({.shards = 3});
  RespPeer other(server.address());
  for (int round = 0; round < 20; ++round) {
    {
      RespPeer peer(server.address());
      std::string bytes;
      for (int i = 0; i < 50; ++i) bytes += request({"INCR", "key" + std::to_string(i)});
      peer.send(bytes);
      // The last has been taken, and the others before it.
      EXPECT_EQ(peer.receive(), ":" + std::to_string(round + 1) + "\r\n");
    }
    for (int i = 0; i < 50; ++i) {
      const std::string key = "key" + std::to_string(i);
      EXPECT_TRUE(testing_tools::soon(
          [&] { return other.call({"GET", key}).ends_with("\r\n" + std::to_string(round + 1) + "\r\n"); }));
    }
  }
}

TEST(Resp, RepliesKeepTheirOrderAcrossShards) {
  KvServer server({.shards = 4});
  RespPeer peer(server.address());
  std::string bytes;
  for (int i = 0; i < 3000; ++i) {
    bytes += request({"SET", "key" + std::to_string(i), "value" + std::to_string(i)});
    bytes += request({"ECHO", std::to_string(i)});
    bytes += request({"MGET", "key" + std::to_string(i), "nosuch", "key" + std::to_string(i / 2)});
  }
  std::thread sender([&] { peer.send(bytes); });
  for (int i = 0; i < 3000; ++i) {
    const auto bulk = [](const std::string& text) {
      return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
    };
    ASSERT_EQ(peer.receive(), "+OK\r\n");
    ASSERT_EQ(peer.receive(), bulk(std::to_string(i)));
    ASSERT_EQ(peer.receive(),
              "*3\r\n" + bulk("value" + std::to_string(i)) + "$-1\r\n" + bulk("value" + std::to_string(i / 2)));
  }
  sender.join();
  EXPECT_EQ(peer.call({"DBSIZE"}), ":3000\r\n");
  // All of them by SCAN and KEYS.
  std::size_t seen = 0;
  std::string cursor = "0";
  do {
    const std::string reply = peer.call({"SCAN", cursor, "COUNT", "100", "MATCH", "key*"});
    const std::size_t begin = reply.find("\r\n", 4) + 2;
    cursor = reply.substr(begin, reply.find("\r\n", begin) - begin);
    for (std::size_t at = reply.find("\r\nkey"); at != std::string::npos; at = reply.find("\r\nkey", at + 1)) ++seen;
  } while (cursor != "0");
  EXPECT_EQ(seen, 3000U);
  EXPECT_TRUE(peer.call({"KEYS", "key*"}).starts_with("*3000\r\n"));
  EXPECT_EQ(peer.call({"FLUSHALL"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"DBSIZE"}), ":0\r\n");
}

// Runs `work` at the loop of a shard, and waits for its result.
template <class Work>
auto at_shard(Store& store, unsigned index, Work work) {
  std::promise<decltype(work())> promise;
  store.site(index).loop().post([&] { promise.set_value(work()); });
  return promise.get_future().get();
}

// Replies that wait for another shard's are bounded: that shard does not answer here.
TEST(Resp, RepliesThatWaitForAnotherShardAreBounded) {
  KvServer server({.shards = 2});
  RespPeer peer(server.address());
  ASSERT_EQ(peer.call({"PING"}), "+PONG\r\n");
  const unsigned home = at_shard(server.store, 0, [&] { return server.store.site(0).connections(); }) == 1 ? 0 : 1;
  std::string near;
  std::string far;
  for (int i = 0; near.empty() || far.empty(); ++i) {
    const std::string key = "key" + std::to_string(i);
    (server.store.shard_of(server.store.key(key).hash) == home ? near : far) = key;
  }
  ASSERT_EQ(peer.call({"SET", near, std::string(100'000, 'v')}), "+OK\r\n");
  const std::uint64_t before = server.server().counters().calls;
  std::promise<void> release;
  server.store.site(1 - home).loop().post([waiting = release.get_future().share()] { waiting.wait(); });
  std::string bytes = request({"GET", far});
  for (int i = 0; i < 500; ++i) bytes += request({"GET", near});
  peer.send(bytes);
  // The loop would execute more in each of these turns.
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(at_shard(server.store, home, [] { return true; }));
  // 8 MiB are 84 of the replies.
  EXPECT_LE(server.server().counters().calls - before, 86U);
  release.set_value();
  EXPECT_EQ(peer.receive(), "$-1\r\n");
  for (int i = 0; i < 500; ++i) ASSERT_EQ(peer.receive().size(), 100'000U + 11);
}

TEST(Resp, AReplyOfSeveralShardsIsBounded) {
  KvServer server({.shards = 2});
  RespPeer peer(server.address());
  for (int i = 0; i < 8; ++i) {
    const std::string key = "key" + std::to_string(i);
    ASSERT_EQ(peer.call({"SET", key, std::string(1 << 20, 'v')}), "+OK\r\n");
    std::vector<std::string> words(258, key);
    words[0] = "MGET";
    EXPECT_TRUE(peer.call(words).starts_with("-ERR the repl")) << key;
    EXPECT_EQ(peer.call({"STRLEN", key}), ":1048576\r\n");
  }
}

TEST(Resp, TheLatestTimeOfExpiry) {
  KvServer server;
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"SET", "a", "1", "PXAT", "9223372036854775807"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"PEXPIRETIME", "a"}), ":9223372036854775807\r\n");
  EXPECT_EQ(peer.call({"EXPIRETIME", "a"}), ":9223372036854776\r\n");
  EXPECT_EQ(peer.call({"GET", "a"}), "$1\r\n1\r\n");
}

TEST(Resp, AConnectionMayEndWhileItsCommandsTravel) {
  KvServer server({.shards = 3});
  for (int i = 0; i < 100; ++i) {
    RespPeer peer(server.address());
    std::string bytes;
    for (int j = 0; j < 100; ++j)
      bytes += request({"MSET", "a" + std::to_string(j), "1", "b" + std::to_string(j), "2"});
    if (i % 2 == 0) bytes += request({"QUIT"});
    peer.send(bytes);
  }
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n");
}

TEST(Resp, RedisCliWorks) {
  if (access("/usr/bin/redis-cli", X_OK) != 0) GTEST_SKIP() << "redis-cli is not installed";
  KvServer server;
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  const auto run = [&](const std::string& command) {
    const std::string whole = "exec /usr/bin/redis-cli -p " + port + " " + command + " 2>&1";
    FILE* const pipe = popen(whole.c_str(), "r");
    std::string out;
    char bytes[4096];
    while (const std::size_t got = fread(bytes, 1, sizeof bytes, pipe)) out.append(bytes, got);
    pclose(pipe);
    return out;
  };
  EXPECT_EQ(run("set a 1 ex 100"), "OK\n");
  EXPECT_EQ(run("-3 incrby a 41"), "42\n");
  EXPECT_EQ(run("--scan"), "a\n");
  EXPECT_NE(run("info memory").find("used_memory:"), std::string::npos);
}

}  // namespace
}  // namespace hawser::kv
