#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "hawser/kv.h"
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

// The loop executes nothing else until `release` is set.
void block_loop(Loop& loop, std::promise<void>& release) {
  std::promise<void> blocked;
  loop.post([&] {
    blocked.set_value();
    release.get_future().wait();
  });
  blocked.get_future().wait();
}

// Returns when the loop has executed what was posted before.
void pass_loop(Loop& loop) {
  std::promise<void> passed;
  loop.post([&] { passed.set_value(); });
  passed.get_future().wait();
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

// 12 lists of 8 MB that nobody reads.
TEST(Traffic, ListsOfKeysWaitForMemory) {
  for (const unsigned shards : {1U, 2U}) {
    KvServer server({.memory_bytes = 64 * traffic_mib, .shards = shards}, traffic_options(std::chrono::hours(1)));
    RespPeer other(server.address());
    constexpr std::size_t keys = 16'000;
    for (std::size_t i = 0; i < keys;) {
      std::vector<std::string> some = {"MSET"};
      for (std::size_t end = i + 1000; i < end; ++i) {
        some.push_back(std::string(500, 'k') + std::to_string(10'000 + i));
        some.emplace_back("1");
      }
      ASSERT_EQ(other.call(some), "+OK\r\n");
    }
    std::vector<std::unique_ptr<RespPeer>> peers;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < 12; ++i) {
      peers.push_back(std::make_unique<RespPeer>(server.address()));
      peers.back()->send(request({"KEYS", "*"}));
      EXPECT_EQ(other.call({"PING"}), "+PONG\r\n");
      // Half of the memory of each loop, and the reply that exceeds it.
      EXPECT_LE(server.server().counters().receive_bytes, shards * (8 + 10) * traffic_mib) << i;
    }
    for (const auto& peer : peers) {
      const std::string reply = peer->receive();
      // A slow machine may take longer than the time for which a list waits.
      const bool waited = std::chrono::steady_clock::now() - begin >= ShardHolds::patience;
      if (waited && reply.starts_with("-TRYAGAIN the reply has ")) continue;
      EXPECT_EQ(reply.size(), std::string_view("*16000\r\n").size() + keys * (505 + 8)) << reply.substr(0, 200);
    }
  }
}

// The MGET is answered by the loop of the connection at once. The GET behind it is the oldest command then, and goes to
// the other shard, although the reply behind it exceeds the limit.
TEST(Traffic, ACommandOfAnotherShardGoesOnWhenItIsTheOldest) {
  ServerOptions options = traffic_options(std::chrono::hours(1));
  options.send_backlog_bytes_max = 64 * 1024;
  KvServer server({.memory_bytes = 64 * traffic_mib, .shards = 2}, options);
  constexpr std::size_t value_bytes = 200'000;
  std::string large[2] = {"a", "a"};
  std::string missing[2] = {"b", "b"};
  RespPeer peer(server.address());
  for (const unsigned shard : {0U, 1U}) {
    while (server.store.shard_of(server.store.key(large[shard]).hash) != shard) large[shard] += 'a';
    while (server.store.shard_of(server.store.key(missing[shard]).hash) != shard) missing[shard] += 'b';
    ASSERT_EQ(peer.call({"SET", large[shard], std::string(value_bytes, 'v')}), "+OK\r\n");
  }
  for (const unsigned here : {0U, 1U}) {
    peer.send(request({"MGET", missing[here]}) + request({"GET", large[1 - here]}) + request({"GET", large[here]}));
    ASSERT_EQ(peer.receive(), "*1\r\n$-1\r\n");
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(peer.receive().size(), value_bytes + std::string_view("$200000\r\n\r\n").size());
    }
  }
}

// Nothing looks for memory any more when a server stops: replies that wait for it are decided at once.
TEST(Traffic, AStopAnswersRepliesThatWaitForMemory) {
  KvServer server({.memory_bytes = 64 * traffic_mib}, traffic_options(std::chrono::hours(1)));
  constexpr std::size_t clients = 12;
  RespPeer other(server.address());
  ASSERT_EQ(other.call({"SET", "a", std::string(traffic_value_bytes, 'v')}), "+OK\r\n");
  const std::uint64_t calls = server.server().counters().calls;
  std::vector<std::unique_ptr<RespPeer>> peers;
  for (std::size_t i = 0; i < clients; ++i) {
    peers.push_back(std::make_unique<RespPeer>(server.address()));
    peers.back()->send(request({"GET", "a"}));
  }
  while (server.server().counters().calls < calls + clients) usleep(1000);
  std::thread stop([&] { server.server().stop(std::chrono::minutes(5)); });
  for (const auto& peer : peers) {
    const std::string reply = peer->receive();
    if (reply.starts_with("-TRYAGAIN the reply has 6291456 bytes")) continue;
    EXPECT_EQ(reply.size(), traffic_value_bytes + std::string_view("$6291456\r\n\r\n").size());
  }
  stop.join();
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
  std::promise<void> release_target;
  block_loop(target.loop(), release_target);
  const std::uint64_t calls = server.server().counters().calls;
  const auto sent = std::chrono::steady_clock::now();
  for (const auto& peer : peers) peer->send(request({"GET", key}));
  while (server.server().counters().calls < calls + clients) usleep(1000);
  // All batches have been sent, and none comes home until the target has had all of them.
  std::promise<void> release_home;
  block_loop(server.store.site(home).loop(), release_home);
  release_target.set_value();
  pass_loop(target.loop());
  // The last one exceeds the half.
  EXPECT_LE(target.shard().stats().hits.get(), 8 * traffic_mib / value_bytes + 1);
  EXPECT_GE(target.shard().stats().hits.get(), 1U);
  EXPECT_LE(server.server().counters().receive_bytes, (8 + 2) * traffic_mib);
  release_home.set_value();
  for (const auto& peer : peers) {
    const std::string reply = peer->receive();
    // A slow machine may take longer than the time for which a value waits.
    const bool waited = std::chrono::steady_clock::now() - sent >= ShardHolds::patience;
    if (waited && reply.starts_with("-TRYAGAIN the reply has 524288 bytes")) continue;
    EXPECT_EQ(reply.size(), value_bytes + std::string_view("$524288\r\n\r\n").size());
  }
}

std::uint64_t loop_of_caller() { return reinterpret_cast<std::uintptr_t>(Loop::current()); }

// The reads of one client of Hawser, and what they returned.
struct TrafficReads {
  static constexpr std::size_t count = 48;
  static constexpr std::size_t value_bytes = traffic_mib / 2;
  bool many = false;            // Each call reads four values.
  std::promise<unsigned> home;  // The shard on the loop of the connection. Its values are those of the other one.
  std::promise<void> begin;
  std::size_t values = 0;

  std::size_t calls() const { return many ? count / 4 : count; }
};

Task<void> read_values_of_another_loop(std::string address, Store& store, TrafficReads& reads) {
  hawser::Client link({.connect_timeout = std::chrono::minutes(5), .call_timeout = std::chrono::minutes(5)});
  EXPECT_TRUE(co_await link.connect(address));
  KvClient client(link, ReadPolicy::calls);
  const Result<std::uint64_t> loop = co_await link.call<&loop_of_caller>();
  EXPECT_TRUE(loop);
  const unsigned home = loop && reinterpret_cast<std::uintptr_t>(&store.site(0).loop()) == *loop ? 0 : 1;
  std::string key = "a";
  while (store.shard_of(store.key(key).hash) == home) key += 'a';
  EXPECT_TRUE(co_await client.set(key, std::string(TrafficReads::value_bytes, 'v')));
  reads.home.set_value(home);
  reads.begin.get_future().wait();
  const auto add = [&](const std::optional<Value>& value) {
    reads.values += value && value->bytes.size() == TrafficReads::value_bytes ? 1 : 0;
  };
  if (reads.many) {
    std::vector<Task<Result<std::vector<std::optional<Value>>>>> calls;
    for (std::size_t i = 0; i < reads.calls(); ++i) calls.push_back(client.get_many({key, key, key, key}));
    for (const auto& got : co_await when_all(std::move(calls))) {
      EXPECT_TRUE(got) << got.error().text;
      for (std::size_t i = 0; got && i < got->size(); ++i) add((*got)[i]);
    }
  } else {
    std::vector<Task<Result<std::optional<Value>>>> calls;
    for (std::size_t i = 0; i < reads.calls(); ++i) calls.push_back(client.get(key));
    for (const auto& got : co_await when_all(std::move(calls))) {
      EXPECT_TRUE(got) << got.error().text;
      if (got) add(*got);
    }
  }
}

// 24 MiB of values of the other loop, and memory of 16 MiB: those that have no memory are not copied, and wait for it.
TEST(Traffic, ValuesForCallsOnAnotherLoopAreChargedBeforeTheyAreCopied) {
  for (const bool many : {false, true}) {
    Store store({.memory_bytes = 64 * traffic_mib, .shards = 2, .value_bytes_max = 4 * traffic_mib});
    Service service(store);
    ServerOptions options = traffic_options(std::chrono::hours(1));
    options.threads = 2;
    Server server(options);
    server.register_handler<&loop_of_caller>();
    attach_store(server, store, service, {});
    ASSERT_TRUE(server.start());
    store.bind(server.loops());
    TrafficReads reads;
    reads.many = many;
    std::thread client([&] { sync_wait(read_values_of_another_loop(server.address(), store, reads)); });
    const unsigned home_index = reads.home.get_future().get();
    Loop& home = store.site(home_index).loop();
    StoreSite& target = store.site(1 - home_index);
    std::promise<void> release_target;
    block_loop(target.loop(), release_target);
    const std::uint64_t calls = server.counters().calls;
    reads.begin.set_value();
    const auto arrival_end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (server.counters().calls < calls + reads.calls() && std::chrono::steady_clock::now() < arrival_end) {
      usleep(1000);
    }
    // All calls have travelled. Each loop runs in turn: the calls learn how long the values are, get_many in a second
    // trip. Then those that have memory read the values.
    const std::uint64_t before = target.shard().stats().hits.get();
    const int turns = many ? 2 : 1;
    std::promise<void> release_home[3];
    std::promise<void> release_again[2];
    block_loop(home, release_home[0]);
    release_target.set_value();
    for (int turn = 0; turn < turns; ++turn) {
      pass_loop(target.loop());
      EXPECT_EQ(target.shard().stats().hits.get(), before) << "no value is copied";
      block_loop(target.loop(), release_again[turn]);
      release_home[turn].set_value();
      for (int pass = 0; pass < 3; ++pass) pass_loop(home);
      block_loop(home, release_home[turn + 1]);
      EXPECT_LE(server.counters().receive_bytes, 17 * traffic_mib);
      release_again[turn].set_value();
    }
    pass_loop(target.loop());
    EXPECT_LE(target.shard().stats().hits.get() - before, 16 * traffic_mib / TrafficReads::value_bytes);
    release_home[turns].set_value();
    client.join();
    EXPECT_EQ(reads.values, TrafficReads::count);
    server.stop(std::chrono::milliseconds(100));
  }
}

// A client of Redis on one loop, and keys of both.
class TrafficPeer {
 public:
  explicit TrafficPeer(KvServer& server) : server_(server), peer_(server.address()) {
    const std::string id = peer_.call({"CLIENT", "ID"});
    home_ = static_cast<unsigned>(std::stoul(id.substr(1)) % server.store.shards());
  }
  RespPeer& peer() { return peer_; }
  StoreSite& home() { return server_.store.site(home_); }
  StoreSite& other() { return server_.store.site((home_ + 1) % server_.store.shards()); }
  // A key of that shard, with a value of so many bytes.
  std::string key_of(StoreSite& site, char letter, std::size_t bytes) {
    std::string key(1, letter);
    while (server_.store.shard_of(server_.store.key(key).hash) != site.index()) key += letter;
    EXPECT_EQ(peer_.call({"SET", key, std::string(bytes, 'v')}), "+OK\r\n");
    return key;
  }
  // Sends requests that the loop receives at once.
  void send_at_once(const std::string& requests) {
    std::promise<void> release;
    block_loop(home().loop(), release);
    peer_.send(requests);
    release.set_value();
    pass_loop(home().loop());
  }

 private:
  KvServer& server_;
  RespPeer peer_;
  unsigned home_ = 0;
};

// The replies to a client that does not read do not pile up, although each command is the oldest one in turn.
TEST(Traffic, TheOldestCommandOfAnotherShardWaitsForItsReader) {
  const TemporaryFolder folder;
  ServerOptions options = traffic_options(std::chrono::hours(1));
  options.listen = "unix:" + (folder.path() / "kv").string();
  options.send_backlog_bytes_max = 64 * 1024;
  KvServer server({.memory_bytes = 64 * traffic_mib, .shards = 2}, options);
  TrafficPeer client(server);
  constexpr std::size_t value_bytes = 100'000;
  constexpr std::size_t gets = 60;
  const std::string key = client.key_of(client.other(), 'a', value_bytes);
  const std::uint64_t before = client.other().shard().stats().hits.get();
  std::string sent;
  for (std::size_t i = 0; i < gets; ++i) sent += request({"GET", key});
  client.send_at_once(sent);
  for (std::size_t i = 0; i < 2 * gets; ++i) {
    pass_loop(client.home().loop());
    pass_loop(client.other().loop());
  }
  // A batch of 1 MiB, what the socket takes, and the rest of a batch.
  EXPECT_LE(client.other().shard().stats().hits.get() - before, gets / 2);
  for (std::size_t i = 0; i < gets; ++i) {
    ASSERT_EQ(client.peer().receive().size(), value_bytes + std::string_view("$100000\r\n\r\n").size());
  }
}

// Replies of this loop wait for one of the other loop. They would use up the part of the connection, which ended then.
TEST(Traffic, RepliesThatWaitForAnotherShardLeaveTheConnectionMemory) {
  ServerOptions options = traffic_options(std::chrono::hours(1));
  options.message_bytes_max = 4 * traffic_mib;  // The share has room for two of them.
  options.send_backlog_bytes_max = 8 * traffic_mib;
  options.receive_share_bytes_max = 9 * traffic_mib;
  KvServer server({.memory_bytes = 64 * traffic_mib, .shards = 2}, options);
  TrafficPeer client(server);
  constexpr std::size_t value_bytes = 1'400'000;
  constexpr std::size_t gets = 12;
  const std::string first = client.key_of(client.other(), 'a', 10);
  const std::string later = client.key_of(client.home(), 'b', value_bytes);
  const std::uint64_t before = client.home().shard().stats().hits.get();
  std::promise<void> release;
  block_loop(client.other().loop(), release);
  std::string sent = request({"GET", first});
  for (std::size_t i = 0; i < gets; ++i) sent += request({"GET", later});
  client.send_at_once(sent);
  while (client.home().shard().stats().hits.get() == before) usleep(1000);
  pass_loop(client.home().loop());
  // A quarter of the part of the connection, and the reply that exceeds it.
  EXPECT_LE((client.home().shard().stats().hits.get() - before) * value_bytes, 9 * traffic_mib / 4 + value_bytes);
  release.set_value();
  EXPECT_EQ(client.peer().receive(), "$10\r\nvvvvvvvvvv\r\n");
  for (std::size_t i = 0; i < gets; ++i) {
    ASSERT_EQ(client.peer().receive().size(), value_bytes + std::string_view("$1400000\r\n\r\n").size());
  }
}

// The replies of all other threads that are not charged are as many as those of one. More memory is used than half.
TEST(Traffic, TheLanesOfAConnectionShareWhatIsNotCharged) {
  constexpr unsigned shards = 5;
  KvServer server({.memory_bytes = 64 * traffic_mib, .shards = shards}, traffic_options(std::chrono::hours(1)));
  TrafficPeer client(server);
  constexpr std::size_t value_bytes = 4000;
  const std::string key = client.key_of(client.other(), 'a', value_bytes);
  const std::string large = client.key_of(client.home(), 'b', traffic_value_bytes);
  // A loop that is blocked accepts no connection.
  std::vector<std::unique_ptr<TrafficPeer>> unread;
  while (unread.size() < 12) {
    auto peer = std::make_unique<TrafficPeer>(server);
    if (&peer->home() == &client.home()) unread.push_back(std::move(peer));
  }
  const std::uint64_t before = client.other().shard().stats().hits.get();
  std::promise<void> release;
  block_loop(client.other().loop(), release);
  std::string sent;
  for (int i = 0; i < 30; ++i) sent += request({"GET", key});
  client.send_at_once(sent);
  pass_loop(client.home().loop());
  for (const auto& peer : unread) {
    if (server.server().counters().receive_bytes >= 9 * traffic_mib) break;
    const std::uint64_t calls = server.server().counters().calls;
    peer->peer().send(request({"GET", large}));
    while (server.server().counters().calls == calls) usleep(1000);
    pass_loop(client.home().loop());
  }
  EXPECT_GE(server.server().counters().receive_bytes, 9 * traffic_mib);
  std::promise<void> release_home;
  block_loop(client.home().loop(), release_home);
  release.set_value();
  pass_loop(client.other().loop());
  EXPECT_LE(client.other().shard().stats().hits.get() - before, 32 * 1024 / (shards - 1) / value_bytes);
  EXPECT_GE(client.other().shard().stats().hits.get() - before, 1U);
  release_home.set_value();
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(client.peer().receive().size(), value_bytes + std::string_view("$4000\r\n\r\n").size());
  }
}

}  // namespace
}  // namespace hawser::kv
