// MULTI, EXEC, DISCARD, WATCH, and commands about keys of several shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/client.h"
#include "hawser/kv.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

// Keys of different shards, and some of each.
std::vector<std::string> keys_of_shards(Store& store, std::size_t each) {
  std::vector<std::size_t> found(store.shards());
  std::vector<std::string> keys;
  for (int i = 0; keys.size() < each * store.shards(); ++i) {
    std::string key = "k" + std::to_string(i);
    if (found[store.shard_of(store.key(key).hash)]++ < each) keys.push_back(std::move(key));
  }
  return keys;
}

constexpr const char* queued = "+QUEUED\r\n";

TEST(Transactions, ExecuteTheCommandsOfAllShardsInOrder) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.shards = shards});
    RespPeer peer(server.address());
    const std::vector<std::string> keys = keys_of_shards(server.store, 2);
    std::string sent = request({"SET", keys[0], "before"}) + request({"MULTI"});
    std::string expected = "*" + std::to_string(2 * keys.size() + 4) + "\r\n";
    for (const std::string& key : keys) {
      sent += request({"SET", key, key}) + request({"GET", key});
      expected += "+OK\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n";
    }
    sent += request({"DBSIZE"}) + request({"MGET", keys[0], keys.back(), "none"}) + request({"PING"}) +
            request({"FLUSHALL"}) + request({"EXEC"}) + request({"DBSIZE"});
    const auto bulk = [](const std::string& text) {
      return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
    };
    expected += ":" + std::to_string(keys.size()) + "\r\n*3\r\n" + bulk(keys[0]) + bulk(keys.back()) +
                "$-1\r\n+PONG\r\n+OK\r\n";
    peer.send(sent);
    EXPECT_EQ(peer.receive(), "+OK\r\n");
    EXPECT_EQ(peer.receive(), "+OK\r\n");
    for (std::size_t i = 0; i < 2 * keys.size() + 4; ++i) ASSERT_EQ(peer.receive(), queued);
    EXPECT_EQ(peer.receive(), expected);
    EXPECT_EQ(peer.receive(), ":0\r\n");
  }
}

TEST(Transactions, HelloChangesTheRepliesBehindIt) {
  for (const unsigned shards : {1U, 2U}) {
    KvServer server({.shards = shards});
    RespPeer peer(server.address());
    const auto exec = [&](const std::string& version) {
      std::string reply;
      for (const std::string& words : {"MULTI", "GET none", "HELLO", "GET none", "MGET none other", "EXEC"}) {
        reply = peer.line(words == "HELLO" ? words + " " + version : words);
      }
      return reply;
    };
    std::string reply = exec("3");
    EXPECT_TRUE(reply.starts_with("*4\r\n$-1\r\n%7\r\n")) << reply;
    EXPECT_TRUE(reply.ends_with("*0\r\n_\r\n*2\r\n_\r\n_\r\n")) << reply;
    EXPECT_EQ(peer.call({"GET", "none"}), "_\r\n");
    reply = exec("4");
    EXPECT_TRUE(reply.ends_with("NOPROTO unsupported protocol version\r\n_\r\n*2\r\n_\r\n_\r\n")) << reply;
    reply = exec("2");
    EXPECT_TRUE(reply.starts_with("*4\r\n_\r\n*14\r\n")) << reply;
    EXPECT_TRUE(reply.ends_with("*0\r\n$-1\r\n*2\r\n$-1\r\n$-1\r\n")) << reply;
  }
}

// Two clients move amounts between keys of all shards, and a third one always sees the same sum.
TEST(Transactions, AreAtomic) {
  KvServer server({.shards = 3});
  const std::vector<std::string> keys = keys_of_shards(server.store, 1);
  constexpr int transfers = 300;
  std::atomic<int> running = 2;
  std::vector<std::thread> clients;
  for (int client = 0; client < 2; ++client) {
    clients.emplace_back([&, client] {
      RespPeer peer(server.address());
      for (int i = 0; i < transfers; ++i) {
        const std::string& from = keys[static_cast<std::size_t>(i + client) % keys.size()];
        const std::string& to = keys[static_cast<std::size_t>(i + client + 1) % keys.size()];
        peer.send(request({"MULTI"}) + request({"DECRBY", from, "7"}) + request({"INCRBY", to, "7"}) +
                  request({"EXEC"}));
        for (int j = 0; j < 4; ++j) {
          if (peer.receive().starts_with('-')) ADD_FAILURE();
        }
      }
      --running;
    });
  }
  RespPeer reader(server.address());
  int seen = 0;
  while (running != 0) {
    reader.send(request({"MULTI"}) + request({"MGET", keys[0], keys[1], keys[2]}) + request({"EXEC"}));
    for (int i = 0; i < 2; ++i) reader.receive();
    const std::string reply = reader.receive();
    long sum = 0;
    std::size_t at = reply.find("*3\r\n") + 4;
    for (int i = 0; i < 3; ++i) {
      const std::size_t end = reply.find("\r\n", at);
      if (reply.substr(at, 3) == "$-1") {
        at = end + 2;
        continue;
      }
      sum += std::stol(reply.substr(end + 2));
      at = reply.find("\r\n", end + 2) + 2;
    }
    EXPECT_EQ(sum, 0) << reply;
    ++seen;
    if (HasFailure()) break;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(seen, 0);
}

TEST(Transactions, NothingIsExecutedAfterAnError) {
  KvServer server({.shards = 2});
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"SET", "a", "1"}), queued);
  EXPECT_TRUE(peer.call({"LPUSH", "list", "1"}).starts_with("-ERR unknown command"));
  EXPECT_EQ(peer.call({"SET", "b", "1"}), queued);
  EXPECT_EQ(peer.call({"EXEC"}), "-EXECABORT Transaction discarded because of previous errors.\r\n");
  EXPECT_EQ(peer.call({"EXISTS", "a", "b"}), ":0\r\n");
  // A transaction that the connection's memory does not hold fails as a whole.
  KvServer small({.shards = 2, .value_bytes_max = 1024});
  RespPeer other(small.address());
  EXPECT_EQ(other.call({"MULTI"}), "+OK\r\n");
  const std::string set = request({"SET", "a", std::string(1000, 'x')});
  std::string reply;
  for (int i = 0; i < 10'000 && !reply.starts_with('-'); ++i) {
    other.send(set);
    reply = other.receive();
  }
  EXPECT_TRUE(reply.starts_with("-ERR the commands since MULTI exceed ") || reply.starts_with("-OOM")) << reply;
  EXPECT_EQ(other.call({"EXEC"}), "-EXECABORT Transaction discarded because of previous errors.\r\n");
  EXPECT_EQ(other.call({"EXISTS", "a"}), ":0\r\n");
}

TEST(Transactions, FailIfAWatchedKeyHasChanged) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.shards = shards});
    RespPeer peer(server.address());
    RespPeer other(server.address());
    const std::vector<std::string> keys = keys_of_shards(server.store, 3);
    const auto transaction = [&](const std::string& key, const std::vector<std::string>& change) {
      EXPECT_EQ(peer.call({"WATCH", key, keys[1]}), "+OK\r\n");
      if (!change.empty()) other.call(change);
      EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"GET", keys[1]}), queued);
      return peer.call({"EXEC"});
    };
    const std::string executed = "*1\r\n$-1\r\n";
    const std::string failed = "*-1\r\n";
    for (const std::string& key : {keys.front(), keys.back()}) {
      EXPECT_EQ(transaction(key, {}), executed);
      EXPECT_EQ(transaction(key, {"SET", key, "1"}), failed);
      EXPECT_EQ(transaction(key, {"APPEND", key, "1"}), failed);
      EXPECT_EQ(transaction(key, {"EXPIRE", key, "1000"}), failed);
      EXPECT_EQ(transaction(key, {"PERSIST", key}), failed);
      EXPECT_EQ(transaction(key, {"GET", key}), executed);
      EXPECT_EQ(transaction(key, {"RENAME", key, key + "b"}), failed);
      EXPECT_EQ(transaction(key, {"DEL", key}), executed);
      EXPECT_EQ(transaction(key, {"FLUSHALL"}), executed);
      other.call({"SET", key, "1"});
      EXPECT_EQ(transaction(key, {"FLUSHALL"}), failed);
      // A key that was created and removed again has changed.
      EXPECT_EQ(peer.call({"WATCH", key}), "+OK\r\n");
      other.call({"SET", key, "1"});
      other.call({"DEL", key});
      EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"EXEC"}), failed);
      // UNWATCH, DISCARD and RESET end the watch.
      for (const char* const end : {"UNWATCH", "DISCARD", "RESET"}) {
        EXPECT_EQ(peer.call({"WATCH", key}), "+OK\r\n");
        if (end == std::string("DISCARD")) peer.call({"MULTI"});
        peer.call({end});
        other.call({"SET", key, "1"});
        EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
        EXPECT_EQ(peer.call({"EXEC"}), "*0\r\n") << end;
        other.call({"DEL", key});
      }
      // A watched key expires.
      other.call({"SET", key, "1", "PX", "1"});
      while (other.call({"EXISTS", key}) == ":1\r\n") usleep(1000);
      EXPECT_EQ(transaction(key, {}), executed);
      other.call({"SET", key, "1"});
      EXPECT_EQ(peer.call({"WATCH", key}), "+OK\r\n");
      other.call({"PEXPIRE", key, "1"});
      EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"EXEC"}), failed);
      other.call({"FLUSHALL"});
    }
  }
}

// The time of expiry alone changes the key, on a clock that stands still otherwise.
TEST(Transactions, FailIfAWatchedKeyHasExpired) {
  std::atomic<std::int64_t> now = 1'000'000;
  KvServer server({.shards = 2, .clock = [&] { return now.load(); }});
  RespPeer peer(server.address());
  for (const std::string& key : keys_of_shards(server.store, 1)) {
    EXPECT_EQ(peer.call({"SET", key, "1", "PX", "1000"}), "+OK\r\n");
    EXPECT_EQ(peer.call({"WATCH", key}), "+OK\r\n");
    EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
    now += 2000;
    pass_ticks(server);
    EXPECT_EQ(peer.call({"EXEC"}), "*-1\r\n");
    // It is gone before it is watched.
    EXPECT_EQ(peer.call({"SET", key, "1", "PX", "1000"}), "+OK\r\n");
    now += 2000;
    pass_ticks(server);
    EXPECT_EQ(peer.call({"WATCH", key}), "+OK\r\n");
    EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
    EXPECT_EQ(peer.call({"EXEC"}), "*0\r\n");
  }
}

TEST(Transactions, FailIfAClientOfHawserHasChangedAWatchedKey) {
  KvServer server({.shards = 2});
  RespPeer peer(server.address());
  for (const std::string& key : keys_of_shards(server.store, 1)) {
    EXPECT_EQ(peer.call({"WATCH", key}), "+OK\r\n");
    EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
    const auto change = [&]() -> Task<void> {
      Client client;
      co_await client.connect(server.address());
      KvClient store(client);
      const Result<std::uint64_t> set = co_await store.set(key, "native");
      EXPECT_TRUE(set);
    };
    sync_wait(change());
    EXPECT_EQ(peer.call({"SET", key, "lost"}), queued);
    EXPECT_EQ(peer.call({"EXEC"}), "*-1\r\n");
    EXPECT_EQ(peer.call({"GET", key}), "$6\r\nnative\r\n");
  }
}

// Watches and queued commands end with their connection.
TEST(Transactions, NothingIsLeftOfClientsThatHaveGone) {
  KvServer server({.shards = 2});
  const std::vector<std::string> keys = keys_of_shards(server.store, 4);
  for (int i = 0; i < 50; ++i) {
    RespPeer peer(server.address());
    std::vector<std::string> words{"WATCH"};
    words.insert(words.end(), keys.begin(), keys.end());
    EXPECT_EQ(peer.call(words), "+OK\r\n");
    EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
    EXPECT_EQ(peer.call({"SET", keys[0], "1"}), queued);
  }
  RespPeer peer(server.address());
  const auto left = [&] {
    std::atomic<std::size_t> watches = 0;
    std::atomic<unsigned> asked = 0;
    for (unsigned i = 0; i < 2; ++i) {
      StoreSite& site = server.store.site(i);
      site.loop().post([&] {
        watches += site.watches().size();
        ++asked;
      });
    }
    while (asked != 2) usleep(100);
    return watches.load();
  };
  for (int i = 0; i < 60'000 && left() != 0; ++i) usleep(1000);
  EXPECT_EQ(left(), 0U);
  EXPECT_EQ(peer.call({"DBSIZE"}), ":0\r\n");
}

TEST(Transactions, ClientsAreListedAndKilled) {
  KvServer server({.shards = 2});
  RespPeer one(server.address());
  RespPeer other(server.address());
  EXPECT_EQ(one.call({"CLIENT", "SETINFO", "LIB-NAME", "library"}), "+OK\r\n");
  EXPECT_EQ(other.call({"CLIENT", "SETNAME", "victim"}), "+OK\r\n");
  const std::string list = one.call({"CLIENT", "LIST"});
  EXPECT_NE(list.find(" name=victim "), std::string::npos) << list;
  EXPECT_NE(list.find(" lib-name=library "), std::string::npos) << list;
  const std::string id = other.call({"CLIENT", "ID"});
  EXPECT_EQ(one.call({"CLIENT", "KILL", "ID", id.substr(1, id.find('\r') - 1)}), ":1\r\n");
  EXPECT_EQ(other.rest(), "");
  EXPECT_EQ(one.call({"PING"}), "+PONG\r\n");
  // A client that ends itself gets the reply.
  const std::string own = one.call({"CLIENT", "ID"});
  EXPECT_EQ(one.call({"CLIENT", "KILL", "ID", own.substr(1, own.find('\r') - 1), "SKIPME", "no"}), ":1\r\n");
  EXPECT_EQ(one.rest(), "");
}

// A loop that waits for another one that does not come goes on when the server ends.
TEST(Transactions, WhatWaitsForAnotherShardIsRefusedAtTheEnd) {
  KvServer server({.shards = 3});
  RespPeer peer(server.address());
  const std::vector<std::string> keys = keys_of_shards(server.store, 1);
  const std::string id = peer.call({"CLIENT", "ID"});
  const unsigned home = static_cast<unsigned>(std::stoul(id.substr(1)) % 3);
  std::atomic<bool> blocked = true;
  std::atomic<bool> arrived = false;
  server.store.site((home + 1) % 3).loop().post([&] {
    arrived = true;
    while (blocked) usleep(100);
  });
  while (!arrived) usleep(100);
  peer.send(request({"MSET", keys[0], "1", keys[1], "1", keys[2], "1"}));
  // The loop of the connection waits for the blocked one when it executes nothing any more. The reply is the same if
  // the end comes before.
  const auto executed = std::make_shared<std::atomic<int>>(0);
  for (int i = 1; i < 100; ++i) {
    server.store.site(home).loop().post([executed] { ++*executed; });
    usleep(20'000);
    if (*executed != i) break;
  }
  server.store.holds().end();
  const std::string reply = peer.receive();
  EXPECT_EQ(reply, "-TRYAGAIN the server stops, and nothing was executed: send the command again\r\n");
  blocked = false;
  EXPECT_EQ(peer.call({"DBSIZE"}), ":0\r\n");
}

// 256 MiB and the reply that exceeds it. Commands with short replies are executed also behind that.
TEST(Transactions, RepliesOfWritesAreBounded) {
  KvServer server({.memory_bytes = std::size_t{64} << 20}, {.receive_bytes_max = std::size_t{4} << 30,
                                                            .receive_window = std::chrono::hours(1),
                                                            .handshake_timeout = std::chrono::hours(1)});
  RespPeer peer(server.address());
  constexpr std::size_t bytes = std::size_t{60} << 20;
  EXPECT_EQ(peer.call({"SET", "a", std::string(bytes, 'a')}), "+OK\r\n");
  std::string sent = request({"MULTI"});
  for (int i = 0; i < 7; ++i) sent += request({"GETEX", "a", "PERSIST"});
  peer.send(sent + request({"GETDEL", "a"}) + request({"SET", "b", "1"}) + request({"EXEC"}));
  for (int i = 0; i < 10; ++i) peer.receive();
  const std::string reply = peer.receive();
  const std::string error = "-ERR the reply exceeds 256 MiB: request fewer keys at once\r\n";
  const std::string_view value = "$62914560\r\n";
  EXPECT_EQ(reply.size(), 4 + 5 * (value.size() + bytes + 2) + 3 * error.size() + 5);
  EXPECT_TRUE(reply.ends_with(error + error + error + "+OK\r\n"));
  EXPECT_EQ(peer.call({"STRLEN", "a"}), ":" + std::to_string(bytes) + "\r\n");
}

// 10 MiB of the store, 60 MiB of replies, and one of them twice while it goes from the transaction into the queue.
TEST(Transactions, RepliesExistOnce) {
  const ServeProcess server({"--threads", "1", "--index", "0", "--transports", "none"});
  ASSERT_NE(server.address, "");
  RespPeer peer(server.address);
  constexpr std::size_t bytes = std::size_t{10} << 20;
  constexpr std::size_t count = 6;
  ASSERT_EQ(peer.call({"SET", "a", std::string(bytes, 'a')}), "+OK\r\n");
  std::string sent = request({"MULTI"});
  std::string expected = "+OK\r\n";
  for (std::size_t i = 0; i < count; ++i) {
    sent += request({"GETEX", "a", "PERSIST"});
    expected += queued;
  }
  peer.send(sent + request({"EXEC"}));
  expected += "*6\r\n";
  // The replies are read without being kept.
  std::size_t left = expected.size() + count * (std::string_view("$10485760\r\n\r\n").size() + bytes);
  while (left != 0) {
    char arrived[65536];
    const ssize_t got = recv(peer.descriptor(), arrived, sizeof arrived, 0);
    ASSERT_GT(got, 0) << left;
    left -= std::min(left, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n");
  EXPECT_LT(server.resident_mib_most(), 120U);
}

// Four replies of 12 MiB, and memory for two of them: the others wait until these are read.
TEST(Transactions, RepliesWaitForMemory) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  // With the larger mark, the replies of EXEC do not pass it.
  for (const auto& [shards, mark] : {std::pair(1U, mib), std::pair(2U, mib), std::pair(1U, 14 * mib)}) {
    KvServer server({.memory_bytes = 64 * mib, .shards = shards}, {.message_bytes_max = 16 * mib,
                                                                   .send_backlog_bytes_max = mark,
                                                                   .receive_bytes_max = 64 * mib * shards,
                                                                   .receive_share_bytes_max = 16 * mib,
                                                                   .receive_peer_bytes_max = 32 * mib});
    const auto exec_of = [](std::size_t values) {
      std::string sent = request({"MULTI"});
      for (std::size_t i = 0; i < values; ++i) sent += request({"GETEX", std::to_string(i % 12), "PERSIST"});
      return sent + request({"EXEC"}) + request({"PING"});
    };
    std::vector<std::unique_ptr<RespPeer>> peers;
    for (int i = 0; i < 4; ++i) peers.push_back(std::make_unique<RespPeer>(server.address()));
    for (int i = 0; i < 12; ++i) peers[0]->call({"SET", std::to_string(i), std::string(mib, 'v')});
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& peer : peers) peer->send(exec_of(12));
    std::size_t most = 0;
    for (const auto& peer : peers) {
      for (int i = 0; i < 13; ++i) peer->receive();
      const std::string replies = peer->receive();
      // A slow machine may take longer than the time for which the replies wait.
      const bool waited = std::chrono::steady_clock::now() - begin >= ShardHolds::patience;
      if (!waited || !replies.starts_with("-TRYAGAIN the replies of EXEC have ")) {
        EXPECT_EQ(replies.size(), 5 + 12 * (mib + 12)) << replies.substr(0, 200);
      }
      EXPECT_EQ(peer->receive(), "+PONG\r\n");
      most = std::max<std::size_t>(most, server.server().counters().receive_bytes);
    }
    EXPECT_LE(most, 34 * mib * shards);
    // More than one connection may ever have.
    peers[0]->send(exec_of(40));
    for (int i = 0; i < 41; ++i) peers[0]->receive();
    const std::string reply = peers[0]->receive();
    EXPECT_TRUE(reply.starts_with("-OOM the replies of EXEC have 41943040 bytes, and a connection may have "));
    EXPECT_TRUE(reply.ends_with("or raise --memory. Nothing was executed\r\n")) << reply.substr(0, 200);
    EXPECT_EQ(peers[0]->receive(), "+PONG\r\n");
  }
}

// Their values do not exist before EXEC.
TEST(Transactions, RepliesWithValuesThatTheyWriteAreReserved) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const std::string value(mib, 'v');
  const std::vector<std::vector<std::string>> writes = {
      {"SET", "a", value},    {"SETEX", "a", "100", value},      {"MSET", "b", "1", "a", value},
      {"APPEND", "a", value}, {"SETRANGE", "a", "1048575", "v"}, {"SETBIT", "a", "8388607", "1"},
      {"COPY", "long", "a"},  {"RENAME", "long", "a"},           {"BITOP", "NOT", "a", "long"}};
  for (const unsigned shards : {1U, 2U}) {
    KvServer server(
        {.memory_bytes = 64 * mib, .shards = shards},
        {.message_bytes_max = 16 * mib, .receive_bytes_max = 64 * mib, .receive_share_bytes_max = 16 * mib});
    RespPeer peer(server.address());
    ASSERT_EQ(peer.call({"SET", "long", value}), "+OK\r\n");
    for (const std::vector<std::string>& write : writes) {
      std::string sent = request({"MULTI"}) + request(write);
      for (int i = 0; i < 40; ++i) sent += request({"GET", "a"});
      peer.send(sent + request({"EXEC"}));
      for (int i = 0; i < 42; ++i) peer.receive();
      const std::string reply = peer.receive();
      EXPECT_TRUE(reply.starts_with("-OOM the replies of EXEC have 41943040 bytes"))
          << write[0] << reply.substr(0, 200);
      EXPECT_EQ(peer.call({"EXISTS", "a"}), ":0\r\n");
    }
    peer.send(request({"MULTI"}) + request(writes[0]) + request({"GET", "a"}) + request({"DEL", "a"}) +
              request({"EXEC"}));
    for (int i = 0; i < 4; ++i) peer.receive();
    EXPECT_EQ(peer.receive(), "*3\r\n+OK\r\n$1048576\r\n" + value + "\r\n:1\r\n");
  }
}

TEST(Transactions, AreDurableTogether) {
  const TemporaryFolder folder;
  const LogOptions log{.folder = folder.path(), .shards = {.sync = LogSync::always}};
  std::vector<std::string> keys;
  for (const unsigned shards : {3U, 2U}) {
    KvServer server({.shards = shards}, {}, &log);
    RespPeer peer(server.address());
    if (keys.empty()) {
      keys = keys_of_shards(server.store, 2);
      std::string sent = request({"MULTI"});
      for (const std::string& key : keys) sent += request({"SET", key, "1"});
      peer.send(sent + request({"EXEC"}));
      for (std::size_t i = 0; i <= keys.size(); ++i) peer.receive();
      EXPECT_EQ(peer.receive().size(), 4 + 5 * keys.size());
      EXPECT_EQ(peer.call({"MSET", keys[0], "2", keys[5], "2", keys[3], "2"}), "+OK\r\n");
    } else {
      EXPECT_EQ(peer.call({"MGET", keys[0], keys[1], keys[5]}), "*3\r\n$1\r\n2\r\n$1\r\n1\r\n$1\r\n2\r\n");
      EXPECT_EQ(peer.call({"DBSIZE"}), ":6\r\n");
    }
  }
}

TEST(SeveralShards, MsetSetsAllOrNothing) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.memory_bytes = shards * (std::size_t{2} << 20),
                     .policy = MemoryPolicy::refuse,
                     .shards = shards,
                     .clock = [] { return std::int64_t{1'000'000}; }});
    RespPeer peer(server.address());
    const std::vector<std::string> keys = keys_of_shards(server.store, 6);
    EXPECT_EQ(peer.call({"SET", keys[0], "old", "EX", "1000"}), "+OK\r\n");
    std::vector<std::string> words{"MSET"};
    for (const std::string& key : keys) words.insert(words.end(), {key, std::string(600'000, 'x')});
    EXPECT_TRUE(peer.call(words).starts_with("-OOM"));
    EXPECT_EQ(peer.call({"DBSIZE"}), ":1\r\n");
    EXPECT_EQ(peer.call({"GET", keys[0]}), "$3\r\nold\r\n");
    EXPECT_EQ(peer.call({"TTL", keys[0]}), ":1000\r\n");
    words[0] = "MSETNX";
    words[1] = "new";
    EXPECT_TRUE(peer.call(words).starts_with("-OOM"));
    EXPECT_EQ(peer.call({"DBSIZE"}), ":1\r\n");
  }
}

TEST(SeveralShards, AValueOfMostOfTheMemoryIsOverwritten) {
  for (const MemoryPolicy policy : {MemoryPolicy::evict, MemoryPolicy::refuse}) {
    KvServer server({.memory_bytes = std::size_t{4} << 20, .policy = policy});
    RespPeer peer(server.address());
    EXPECT_EQ(peer.call({"SET", "a", std::string(3'000'000, 'x')}), "+OK\r\n");
    EXPECT_EQ(peer.call({"SET", "a", std::string(3'100'000, 'y')}), "+OK\r\n");
    EXPECT_EQ(peer.call({"SET", "a", std::string(2'900'000, 'z')}), "+OK\r\n");
    // A value that does not fit leaves the old one.
    EXPECT_TRUE(peer.call({"SET", "a", std::string(5'000'000, 'x')}).starts_with("-OOM"));
    EXPECT_EQ(peer.call({"STRLEN", "a"}), ":2900000\r\n");
    EXPECT_EQ(peer.call({"DBSIZE"}), ":1\r\n");
  }
}

TEST(SeveralShards, RenameCopyAndBitopUseKeysOfAllOfThem) {
  KvServer server({.shards = 3});
  RespPeer peer(server.address());
  const std::vector<std::string> keys = keys_of_shards(server.store, 2);
  for (const std::string& from : keys) {
    for (const std::string& to : keys) {
      if (from == to) continue;
      peer.call({"FLUSHALL"});
      EXPECT_EQ(peer.call({"SET", from, "value", "PXAT", "9999999999999"}), "+OK\r\n");
      EXPECT_EQ(peer.call({"COPY", from, to}), ":1\r\n");
      EXPECT_EQ(peer.call({"COPY", from, to}), ":0\r\n");
      EXPECT_EQ(peer.call({"MSETNX", to, "1", "new", "2"}), ":0\r\n");
      EXPECT_EQ(peer.call({"BITOP", "XOR", "bits", from, to}), ":5\r\n");
      EXPECT_EQ(peer.call({"BITCOUNT", "bits"}), ":0\r\n");
      EXPECT_EQ(peer.call({"RENAMENX", from, to}), ":0\r\n");
      EXPECT_EQ(peer.call({"RENAME", from, to}), "+OK\r\n");
      EXPECT_EQ(peer.call({"RENAME", from, to}), "-ERR no such key\r\n");
      EXPECT_EQ(peer.call({"GET", to}), "$5\r\nvalue\r\n");
      EXPECT_EQ(peer.call({"PEXPIRETIME", to}), ":9999999999999\r\n");
    }
  }
}

TEST(SeveralShards, ScanOfAnEmptyStoreTakesFewTrips) {
  for (const unsigned shards : {1U, 3U}) {
    KvServer server({.shards = shards});
    RespPeer peer(server.address());
    EXPECT_EQ(peer.call({"SCAN", "0"}), "*2\r\n$1\r\n0\r\n*0\r\n");
    for (int i = 0; i < 2000; ++i) peer.send(request({"SET", "key" + std::to_string(i), "1"}));
    for (int i = 0; i < 2000; ++i) peer.receive();
    std::string cursor = "0";
    std::size_t keys = 0;
    int trips = 0;
    do {
      const std::string reply = peer.call({"SCAN", cursor, "COUNT", "100"});
      cursor = reply.substr(reply.find("\r\n", 4) + 2);
      cursor.resize(cursor.find('\r'));
      keys += static_cast<std::size_t>(std::count(reply.begin(), reply.end(), 'k'));
      // A cursor is exact as a floating point number.
      EXPECT_LT(std::stoull(cursor), std::uint64_t{1} << 53);
      ASSERT_LT(++trips, 100);
    } while (cursor != "0");
    EXPECT_EQ(keys, 2000U);
  }
}

}  // namespace
}  // namespace hawser::kv
