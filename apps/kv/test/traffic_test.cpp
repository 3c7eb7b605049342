#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kv/test/resp_peer.h"
#include "tests/testing.h"

// The memory for requests that have not arrived completely, and for replies that are not read: clients wait for it.
namespace hawser::kv {
namespace {

constexpr std::size_t traffic_mib = std::size_t{1} << 20;
constexpr std::size_t traffic_value_bytes = 6 * traffic_mib;

ServerOptions traffic_options(Duration receive_window = std::chrono::seconds(10)) {
  return {.message_bytes_max = 8 * traffic_mib,
          .send_backlog_bytes_max = traffic_mib,
          .receive_bytes_max = 16 * traffic_mib,
          .receive_share_bytes_max = 16 * traffic_mib,
          .receive_peer_bytes_max = 16 * traffic_mib,
          .receive_window = receive_window,
          .handshake_timeout = std::chrono::hours(1)};
}

std::string part_of(const std::string& request, std::size_t begin, std::size_t bytes) {
  return request.substr(begin, bytes);
}

// The memory is used up by the beginnings of all requests, and none could be completed without more.
TEST(Traffic, RequestsWaitForMemory) {
  KvServer server({.memory_bytes = 64 * traffic_mib}, traffic_options());
  constexpr std::size_t clients = 12;
  constexpr std::size_t begun_bytes = 600'000;
  const std::string sent = request({"SET", "a", std::string(traffic_value_bytes, 'v')});
  std::vector<std::unique_ptr<RespPeer>> peers;
  for (std::size_t i = 0; i < clients; ++i) {
    peers.push_back(std::make_unique<RespPeer>(server.address()));
    peers.back()->send(part_of(sent, 0, begun_bytes));
  }
  while (server.server().counters().receive_bytes < clients * begun_bytes) usleep(1000);
  std::atomic<std::size_t> done = 0;
  std::vector<std::thread> threads;
  for (const auto& peer : peers) {
    threads.emplace_back([&] {
      peer->send(part_of(sent, begun_bytes, sent.size()));
      EXPECT_EQ(peer->receive(), "+OK\r\n");
      ++done;
    });
  }
  std::size_t most = 0;
  while (done != clients) {
    most = std::max<std::size_t>(most, server.server().counters().receive_bytes);
    usleep(1000);
  }
  for (std::thread& thread : threads) thread.join();
  // The limit, and one request beyond it, in a block of twice its length at most.
  EXPECT_LE(most, (16 + 12) * traffic_mib);
  EXPECT_EQ(peers[0]->call({"STRLEN", "a"}), ":" + std::to_string(traffic_value_bytes) + "\r\n");
}

// The third client waits for the memory that the replies to the first one hold. It does not wait for memory that it
// holds itself for what it would receive.
TEST(Traffic, AClientDoesNotWaitForItsOwnBlock) {
  KvServer server({.memory_bytes = 64 * traffic_mib}, traffic_options(std::chrono::hours(1)));
  RespPeer other(server.address());
  ASSERT_EQ(other.call({"SET", "a", std::string(traffic_value_bytes, 'v')}), "+OK\r\n");
  RespPeer unread(server.address());
  unread.send(request({"GET", "a"}));
  EXPECT_EQ(other.call({"PING"}), "+PONG\r\n");
  RespPeer peer(server.address());
  const std::string set = request({"SET", "b", std::string(traffic_value_bytes, 'w')});
  std::thread sender([&] { peer.send(set + request({"GET", "a"}) + set); });
  EXPECT_EQ(peer.receive(), "+OK\r\n");
  EXPECT_EQ(peer.receive().size(), traffic_value_bytes + std::string_view("$6291456\r\n\r\n").size());
  EXPECT_EQ(peer.receive(), "+OK\r\n");
  sender.join();
}

// 24 values of 6 MiB that nobody reads: those that have no memory are not read from the store.
TEST(Traffic, RepliesOfOneCommandWaitForMemory) {
  for (const unsigned shards : {1U, 2U}) {
    KvServer server({.memory_bytes = 64 * traffic_mib, .shards = shards}, traffic_options(std::chrono::hours(1)));
    constexpr std::size_t clients = 24;
    RespPeer other(server.address());
    ASSERT_EQ(other.call({"SET", "a", std::string(traffic_value_bytes, 'v')}), "+OK\r\n");
    std::vector<std::unique_ptr<RespPeer>> peers;
    std::vector<std::chrono::steady_clock::time_point> sent;
    for (std::size_t i = 0; i < clients; ++i) {
      peers.push_back(std::make_unique<RespPeer>(server.address()));
      sent.push_back(std::chrono::steady_clock::now());
      peers.back()->send(request({"GET", "a"}));
      EXPECT_EQ(other.call({"PING"}), "+PONG\r\n");
      // Half of the memory of each loop, and the reply that exceeds it.
      EXPECT_LE(server.server().counters().receive_bytes, shards * (16 + 8) * traffic_mib) << i;
    }
    // Others leave less than the 2 MiB that a command is charged at first. Short values do not wait.
    EXPECT_EQ(other.call({"SET", "b", std::string(traffic_mib, 'v')}), "+OK\r\n");
    std::string many;
    for (int i = 0; i < 8; ++i) many += request({"GET", "b"});
    std::vector<std::unique_ptr<RespPeer>> fillers;
    for (std::size_t i = 0; i < 8 * shards; ++i) {
      fillers.push_back(std::make_unique<RespPeer>(server.address()));
      fillers.back()->send(many);
      EXPECT_EQ(other.call({"PING"}), "+PONG\r\n");
    }
    for (const std::string key : {"short", "other"}) {
      EXPECT_EQ(other.call({"SET", key, "1"}), "+OK\r\n");
      EXPECT_EQ(other.call({"GET", key}), "$1\r\n1\r\n");
    }
    fillers.clear();
    for (std::size_t i = 0; i < clients; ++i) {
      const std::string reply = peers[i]->receive();
      // A slow machine may take longer than the time for which a value waits.
      const bool waited = std::chrono::steady_clock::now() - sent[i] >= ShardHolds::patience;
      if (waited && reply.starts_with("-TRYAGAIN the reply has 6291456 bytes")) continue;
      EXPECT_EQ(reply.size(), traffic_value_bytes + std::string_view("$6291456\r\n\r\n").size());
    }
  }
}

// Clients on one loop read values of the other one, which executes nothing until all commands have arrived. It reads
// the values that half of the memory allows, and the rest when the clients have read.
TEST(Traffic, RepliesOfAnotherShardWaitForMemoryOnTheirWay) {
  KvServer server({.memory_bytes = 64 * traffic_mib, .shards = 2}, traffic_options(std::chrono::hours(1)));
  constexpr std::size_t value_bytes = traffic_mib / 2;
  constexpr std::size_t clients = 48;
  std::vector<std::unique_ptr<RespPeer>> of_loop[2];
  while (of_loop[0].size() < clients && of_loop[1].size() < clients) {
    auto peer = std::make_unique<RespPeer>(server.address());
    const std::string id = peer->call({"CLIENT", "ID"});
    ASSERT_TRUE(id.starts_with(':')) << id;
    of_loop[std::stoul(id.substr(1)) % 2].push_back(std::move(peer));
  }
  const unsigned home = of_loop[0].size() == clients ? 0 : 1;
  const std::vector<std::unique_ptr<RespPeer>>& peers = of_loop[home];
  std::string key = "a";
  while (server.store.shard_of(server.store.key(key).hash) == home) key += 'a';
  ASSERT_EQ(peers[0]->call({"SET", key, std::string(value_bytes, 'v')}), "+OK\r\n");

  StoreSite& target = server.store.site(1 - home);
  const auto block = [](Loop& loop, std::promise<void>& release) {
    std::promise<void> blocked;
    loop.post([&] {
      blocked.set_value();
      release.get_future().wait();
    });
    blocked.get_future().wait();
  };
  const auto pass = [](Loop& loop) {
    std::promise<void> passed;
    loop.post([&] { passed.set_value(); });
    passed.get_future().wait();
  };
  std::promise<void> release_target;
  block(target.loop(), release_target);
  const std::uint64_t calls = server.server().counters().calls;
  const auto sent = std::chrono::steady_clock::now();
  for (const auto& peer : peers) peer->send(request({"GET", key}));
  while (server.server().counters().calls < calls + clients) usleep(1000);
  // All batches have been sent, and none comes home until the target has had all of them.
  std::promise<void> release_home;
  block(server.store.site(home).loop(), release_home);
  release_target.set_value();
  pass(target.loop());
  // The last one exceeds the half.
  EXPECT_LE(target.shard().stats().hits.get(), 8 * traffic_mib / value_bytes + 1);
  EXPECT_GE(target.shard().stats().hits.get(), 1);
  EXPECT_LE(server.server().counters().receive_bytes, (8 + 1) * traffic_mib);
  release_home.set_value();
  for (const auto& peer : peers) {
    const std::string reply = peer->receive();
    // A slow machine may take longer than the time for which a value waits.
    const bool waited = std::chrono::steady_clock::now() - sent >= ShardHolds::patience;
    if (waited && reply.starts_with("-TRYAGAIN the reply has 524288 bytes")) continue;
    EXPECT_EQ(reply.size(), value_bytes + std::string_view("$524288\r\n\r\n").size());
  }
}

}  // namespace
}  // namespace hawser::kv
