// Many clients of one server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

// Sets the soft limit of descriptors of this process. Returns the hard limit.
rlim_t limit_descriptors(rlim_t count) {
  rlimit limit{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(count, limit.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit.rlim_max;
}

// Pools of Redis clients open connections long before they send a request on them, and commands may arrive in pieces.
TEST(Connections, TenThousandSilentClientsAreKept) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const TemporaryFolder folder;
  limit_descriptors(1024);  // The usual one of a shell, which the server raises by itself.
  const KvProcess server(folder.path(), "", 1);
  const rlim_t most = limit_descriptors(10'200);
  ASSERT_TRUE(server.ready);
  const std::size_t count = std::min<std::size_t>(10'000, static_cast<std::size_t>(most) - 200);
  {
    std::vector<std::unique_ptr<RespPeer>> peers;
    for (std::size_t i = 0; i < count; ++i) {
      peers.push_back(std::make_unique<RespPeer>(server.address()));
      ASSERT_TRUE(peers.back()->connected()) << i;
    }
    RespPeer other(server.address());
    EXPECT_EQ(other.call({"PING"}), "+PONG\r\n");
    const std::string whole = request({"SET", "key", "0123456789"});
    for (const std::unique_ptr<RespPeer>& peer : peers) peer->send(whole.substr(0, 30));
    EXPECT_EQ(other.call({"PING"}), "+PONG\r\n");
    for (const std::unique_ptr<RespPeer>& peer : peers) peer->send(whole.substr(30));
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(peers[i]->receive(), "+OK\r\n") << i;
    EXPECT_EQ(other.call({"GET", "key"}), "$10\r\n0123456789\r\n");
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// The server accepts connections before the store has its loops.
TEST(Connections, AConnectionThatIsOlderThanTheStoreLeavesLoading) {
  Store store({.memory_bytes = std::size_t{16} << 20, .shards = 2});
  Service service(store);
  Server server(ServerOptions{.threads = 2});
  attach_store(server, store, service, {});
  ASSERT_TRUE(server.start());
  RespPeer early(server.address());
  EXPECT_EQ(early.call({"GET", "key"}), "-LOADING Redis is loading the dataset in memory\r\n");
  store.bind(server.loops());
  EXPECT_EQ(early.call({"MSET", "key", "one", "other", "two"}), "+OK\r\n");
  EXPECT_EQ(early.call({"GET", "key"}), "$3\r\none\r\n");
  EXPECT_THAT(early.call({"CLIENT", "LIST"}), ::testing::HasSubstr("addr="));
  server.stop(std::chrono::milliseconds(100));
}

// As `nc -N` does: replies that wait for the disk, or for another shard, reach a client that sends nothing more.
TEST(Connections, AClientThatHasEndedItsDirectionGetsAllReplies) {
  for (const unsigned threads : {1U, 3U}) {
    for (const char* const sync : {"", "always"}) {
      SCOPED_TRACE(std::to_string(threads) + " threads, " + sync);
      const TemporaryFolder folder;
      const KvProcess server(folder.path(), sync, threads);
      ASSERT_TRUE(server.ready);
      for (int round = 0; round < 20; ++round) {
        RespPeer peer(server.address());
        std::string requests;
        std::string replies;
        for (int i = 0; i < 300; ++i) {
          const std::string key = "key" + std::to_string(i);
          requests += request({"SET", key, "v"}) + request({"MGET", key, "nosuch", key});
          replies += "+OK\r\n*3\r\n$1\r\nv\r\n$-1\r\n$1\r\nv\r\n";
        }
        peer.send(requests);
        EXPECT_EQ(shutdown(peer.descriptor(), SHUT_WR), 0);
        ASSERT_EQ(peer.rest(), replies) << round;
      }
    }
  }
}

// Errors about subcommands advise HELP.
TEST(Connections, HelpNamesTheSubcommands) {
  KvServer server({});
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"CLIENT", "NOTHING"}), "-ERR unknown subcommand 'NOTHING'. Try CLIENT HELP.\r\n");
  for (const auto& [command, subcommand] :
       {std::pair{"CLIENT", "TRACKINGINFO"}, {"CONFIG", "GET"}, {"COMMAND", "DOCS"}, {"OBJECT", "ENCODING"}}) {
    const std::string reply = peer.call({command, "HELP"});
    EXPECT_EQ(reply.front(), '*') << reply;
    EXPECT_NE(reply.find("\r\n+" + std::string(subcommand) + "\r\n"), std::string::npos) << reply;
  }
  EXPECT_EQ(peer.call({"CLIENT", "PAUSE", "10"}), "-ERR clients cannot be paused\r\n");
}

Task<void> note_stop(Background background, std::atomic<bool>& stopping) {
  static_cast<void>(co_await Loop::current()->sleep(std::chrono::hours(1), background.stopping));
  stopping = true;
}

// A connection has sent commands to a shard whose loop has no connections. Their replies are long, so that they travel
// several times after the stop has begun.
TEST(Connections, ALoopServesTheConnectionsOfOthersWhileTheServerStops) {
  KvServer server({.shards = 3});
  RespPeer peer(server.address());
  const std::string id = peer.call({"CLIENT", "ID"});
  const unsigned home = static_cast<unsigned>(std::stoul(id.substr(1)) % 3);
  ASSERT_EQ(home, 0U) << "loops get connections in turn";
  std::string key = "key";
  while (server.store.shard_of(server.store.key(key).hash) != 1) key += 'y';
  EXPECT_EQ(peer.call({"SET", key, std::string(1 << 20, 'v')}), "+OK\r\n");

  // Loops receive the stop in the order of their numbers: when the last one has it, it waits for all.
  std::atomic<bool> stopping = false;
  std::atomic<bool> spawned = false;
  server.store.site(2).loop().post([&] {
    EXPECT_TRUE(server.server().spawn([&stopping](Background background) { return note_stop(background, stopping); }));
    spawned = true;
  });
  std::atomic<bool> blocked = true;
  server.store.site(1).loop().post([&] {
    while (blocked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  constexpr std::uint64_t count = 8;
  const std::uint64_t before = server.store.activity().commands;
  std::string sent;
  for (std::uint64_t i = 0; i < count; ++i) sent += request({"GET", key});
  peer.send(sent);
  while (!spawned || server.store.activity().commands < before + count) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::thread stop([&] { server.server().stop(std::chrono::seconds(60)); });
  while (!stopping) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  blocked = false;
  const std::string replies = peer.rest();
  EXPECT_EQ(replies.size(), count * ((1 << 20) + std::string_view("$1048576\r\n\r\n").size()));
  stop.join();
}

}  // namespace
}  // namespace hawser::kv
