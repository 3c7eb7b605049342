// CLIENT TRACKING: invalidations of what clients of RESP3 keep in caches of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

std::string bulk_of(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }
std::string invalidation_of(const std::string& key) { return ">2\r\n$10\r\ninvalidate\r\n*1\r\n" + bulk_of(key); }
const std::string all_invalid = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

// A client of RESP3.
class CachingPeer : public RespPeer {
 public:
  explicit CachingPeer(const KvServer& server, const std::vector<std::string>& more = {}) : RespPeer(server.address()) {
    EXPECT_TRUE(call({"HELLO", "3"}).starts_with("%7\r\n"));
    std::vector<std::string> words = {"CLIENT", "TRACKING", "ON"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(call(words), "+OK\r\n");
  }
};

TEST(ClientCaches, AreNotifiedOnceOfEachKindOfChange) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.shards = shards});
    CachingPeer reader(server);
    RespPeer writer(server.address());
    const std::vector<std::vector<std::string>> changes = {
        {"SET", "a", "2"},    {"APPEND", "a", "3"},         {"EXPIRE", "a", "1000"},
        {"PERSIST", "a"},     {"GETEX", "a", "EX", "9"},    {"INCR", "a"},
        {"RENAME", "a", "b"}, {"MSET", "b", "1", "a", "2"}, {"DEL", "a"}};
    writer.call({"SET", "a", "1"});
    for (const std::vector<std::string>& change : changes) {
      reader.call({"GET", "a"});
      reader.call({"EXISTS", "a"});
      writer.call(change);
      EXPECT_EQ(reader.receive(), invalidation_of("a")) << change[0] << " with " << shards << " shards";
      writer.call({"TOUCH", "a"});
    }
    // Its own change.
    EXPECT_EQ(reader.call({"STRLEN", "own"}), ":0\r\n");
    EXPECT_EQ(reader.call({"SET", "own", "1"}), "+OK\r\n");
    EXPECT_EQ(reader.receive(), invalidation_of("own"));
  }
}

TEST(ClientCaches, KeysThatExpireAndAllKeys) {
  for (const unsigned shards : {1U, 3U}) {
    std::atomic<std::int64_t> clock = 1'000'000'000'000;
    KvServer server({.shards = shards, .clock = [&] { return clock.load(); }});
    CachingPeer reader(server);
    RespPeer writer(server.address());
    writer.call({"SET", "a", "1", "PX", "30"});
    reader.call({"MGET", "a", "b", "c"});
    clock += 1000;
    EXPECT_EQ(reader.receive(), invalidation_of("a"));
    writer.call({"MSET", "b", "1", "d", "1"});
    EXPECT_EQ(reader.receive(), invalidation_of("b"));
    EXPECT_EQ(reader.call({"GET", "d"}), bulk_of("1"));
    writer.call({"FLUSHALL"});
    EXPECT_EQ(reader.receive(), all_invalid);
  }
}

// Keys that expire while a command finds them, and FLUSHALL within a transaction: a push is never a part of a reply.
TEST(ClientCaches, PushesAreNotInsideReplies) {
  for (const unsigned shards : {1U, 3U}) {
    std::atomic<std::int64_t> clock = 1'000'000'000'000;
    KvServer server({.shards = shards, .clock = [&] { return clock.load(); }});
    CachingPeer reader(server);
    for (const char* key : {"a", "b", "c"}) {
      reader.call({"SET", key, "1", "PX", "10"});
      reader.call({"GET", key});
    }
    clock += 1000;
    pass_ticks(server);
    reader.send(request({"MGET", "a", "b", "c"}) + request({"SET", "d", "1"}) + request({"GET", "d"}) +
                request({"MULTI"}) + request({"GET", "d"}) + request({"FLUSHALL"}) + request({"PING"}) +
                request({"EXEC"}) + request({"ECHO", "end"}));
    std::vector<std::string> replies;
    std::vector<std::string> pushes;
    while (replies.size() < 9 || pushes.size() < 4) {
      std::string reply = reader.receive();
      ASSERT_FALSE(reply.empty());
      (reply[0] == '>' ? pushes : replies).push_back(std::move(reply));
    }
    EXPECT_EQ(replies, (std::vector<std::string>{"*3\r\n_\r\n_\r\n_\r\n", "+OK\r\n", bulk_of("1"), "+OK\r\n",
                                                 "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
                                                 "*3\r\n" + bulk_of("1") + "+OK\r\n+PONG\r\n", bulk_of("end")}));
    std::sort(pushes.begin(), pushes.end());
    EXPECT_EQ(pushes, (std::vector<std::string>{invalidation_of("a"), invalidation_of("b"), invalidation_of("c"),
                                                all_invalid}));
  }
}

// A transaction's reads are tracked, and its reply comes before their invalidations.
TEST(ClientCaches, OptInWithTransactions) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.shards = shards});
    CachingPeer reader(server, {"OPTIN"});
    RespPeer writer(server.address());
    writer.call({"MSET", "a", "1", "b", "2", "c", "3"});
    EXPECT_EQ(reader.call({"GET", "a"}), bulk_of("1"));  // Not tracked.
    writer.call({"SET", "a", "2"});
    reader.send(request({"CLIENT", "CACHING", "YES"}) + request({"MULTI"}) + request({"PTTL", "a"}) +
                request({"MGET", "a", "b", "c"}) + request({"EXEC"}) + request({"GET", "d"}));
    EXPECT_EQ(reader.receive(), "+OK\r\n");
    EXPECT_EQ(reader.receive(), "+OK\r\n");
    EXPECT_EQ(reader.receive(), "+QUEUED\r\n");
    EXPECT_EQ(reader.receive(), "+QUEUED\r\n");
    EXPECT_EQ(reader.receive(), "*2\r\n:-1\r\n*3\r\n" + bulk_of("2") + bulk_of("2") + bulk_of("3"));
    EXPECT_EQ(reader.receive(), "_\r\n");
    writer.call({"SET", "d", "1"});
    writer.call({"SET", "c", "1"});
    EXPECT_EQ(reader.receive(), invalidation_of("c"));
    EXPECT_EQ(reader.call({"CLIENT", "TRACKING", "OFF"}), "+OK\r\n");
    writer.call({"SET", "b", "1"});
    EXPECT_EQ(reader.call({"PING"}), "+PONG\r\n");
  }
}

TEST(ClientCaches, AnswersOfClientTracking) {
  KvServer server;
  RespPeer peer(server.address());
  EXPECT_TRUE(peer.call({"CLIENT", "TRACKING", "ON"}).starts_with("-ERR CLIENT TRACKING needs RESP3"));
  peer.call({"HELLO", "3"});
  for (const char* word : {"BCAST", "NOLOOP"}) {
    EXPECT_TRUE(peer.call({"CLIENT", "TRACKING", "ON", word}).starts_with("-ERR CLIENT TRACKING has OPTIN and OPTOUT"));
  }
  EXPECT_TRUE(peer.call({"CLIENT", "CACHING", "YES"}).starts_with("-ERR CLIENT CACHING can be called only"));
  EXPECT_EQ(peer.call({"CLIENT", "TRACKING", "ON", "OPTOUT"}), "+OK\r\n");
  EXPECT_TRUE(peer.call({"CLIENT", "CACHING", "YES"}).starts_with("-ERR CLIENT CACHING YES is only valid"));
  EXPECT_TRUE(peer.call({"CLIENT", "TRACKING", "ON"}).starts_with("-ERR You can't switch"));
  EXPECT_EQ(peer.call({"CLIENT", "CACHING", "NO"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"CLIENT", "TRACKINGINFO"}),
            "%3\r\n$5\r\nflags\r\n~3\r\n$2\r\non\r\n$6\r\noptout\r\n$10\r\ncaching-no\r\n$8\r\nredirect\r\n:0\r\n"
            "$8\r\nprefixes\r\n*0\r\n");
  peer.call({"GET", "a"});  // Not tracked.
  peer.call({"SET", "a", "1"});
  EXPECT_EQ(peer.call({"GET", "a"}), bulk_of("1"));
  EXPECT_NE(peer.call({"CLIENT", "LIST"}).find("flags=t"), std::string::npos);
  EXPECT_NE(peer.call({"INFO"}).find("tracking_clients:1\r\n"), std::string::npos);
  EXPECT_NE(peer.call({"INFO"}).find("tracking_total_items:1\r\n"), std::string::npos);
  EXPECT_EQ(peer.call({"RESET"}), "+RESET\r\n");
  EXPECT_EQ(peer.call({"SET", "a", "2"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n");
}

// Names of 8,000 bytes: beyond the bound, clients are notified of keys that have not changed.
TEST(ClientCaches, TrackedKeysAreBounded) {
  KvServer server;
  CachingPeer reader(server);
  constexpr std::size_t name_bytes = 8000;
  constexpr std::size_t most = TrackedKeys::bytes_max / (name_bytes + TrackedKeys::overhead_bytes);
  std::string requests;
  for (std::size_t i = 0; i < most + 10; ++i) {
    std::string key = std::to_string(i);
    key.resize(name_bytes, 'x');
    requests += request({"EXISTS", key});
  }
  std::thread sender([&] { reader.send(requests); });
  std::size_t invalidated = 0;
  for (std::size_t i = 0; i < most + 20; ++i) invalidated += reader.receive().starts_with('>') ? 1U : 0U;
  sender.join();
  EXPECT_EQ(invalidated, 10U);
  EXPECT_EQ(server.store.site(0).tracked_keys().size(), most);
}

// Its reply comes first, and then the client drops all keys.
TEST(ClientCaches, ALongCommandIsNotTracked) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.shards = shards});
    CachingPeer reader(server);
    reader.call({"GET", "a"});
    for (const std::size_t keys : {TrackedKeys::command_keys_max, TrackedKeys::command_keys_max + 1}) {
      std::vector<std::string> words = {"EXISTS"};
      for (std::size_t i = 0; i < keys; ++i) words.push_back("k" + std::to_string(i));
      EXPECT_EQ(reader.call(words), ":0\r\n");
      std::size_t tracked = 0;
      for (unsigned i = 0; i < shards; ++i) tracked += server.store.site(i).tracked_keys().size();
      EXPECT_EQ(tracked, TrackedKeys::command_keys_max + 1) << shards;
    }
    EXPECT_EQ(reader.receive(), all_invalid);
  }
}

// Clients that read keys which others write: in the end, what each one holds is what the store has.
TEST(ClientCaches, AreNeverStale) {
  KvServer server({.shards = 3});
  constexpr int keys = 20;
  constexpr int rounds = 400;
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      RespPeer peer(server.address());
      for (int i = 0; i < rounds; ++i) {
        const std::string key = "k" + std::to_string((i * 7 + w) % keys);
        const std::string other = "k" + std::to_string((i * 3 + w) % keys);
        i % 3 == 0 ? peer.call({"MSET", key, std::to_string(i), other, "x"}) : peer.call({"INCRBY", key, "1"});
      }
    });
  }
  std::vector<std::string> cache(keys);  // Empty: it is not cached.
  CachingPeer reader(server);
  const auto apply = [&](const std::string& push) {
    const std::size_t k = push.find("\r\nk", 20);
    ASSERT_NE(k, std::string::npos) << push;
    cache[static_cast<std::size_t>(std::stoi(push.substr(k + 3)))].clear();
  };
  const auto get = [&](int key) {
    std::string& held = cache[static_cast<std::size_t>(key)];
    if (!held.empty()) return;
    reader.send(request({"GET", "k" + std::to_string(key)}));
    for (;;) {
      std::string reply = reader.receive();
      ASSERT_FALSE(reply.empty());
      if (reply[0] == '>') {
        apply(reply);
        continue;
      }
      held = std::move(reply);
      return;
    }
  };
  for (int i = 0; i < rounds; ++i) get(i % keys);
  for (std::thread& writer : writers) writer.join();
  reader.send(request({"PING"}));
  for (std::string reply = reader.receive(); reply != "+PONG\r\n"; reply = reader.receive()) apply(reply);
  // Invalidations of other shards may still be on their way.
  RespPeer plain(server.address());
  for (int i = 0; i < keys; ++i) {
    const std::string held = cache[static_cast<std::size_t>(i)];
    if (held.empty()) continue;
    const std::string now = plain.call({"GET", "k" + std::to_string(i)});
    while (cache[static_cast<std::size_t>(i)] == held && held != now && !HasFatalFailure()) apply(reader.receive());
  }
}

}  // namespace
}  // namespace hawser::kv
