// Commands that take long let the loop serve others between their steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kv/commands.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A server that counts the ticks in which its shards are used: each asks the clock once in a tick.
class CountedTicks {
 public:
  explicit CountedTicks(unsigned shards)
      : server({.shards = shards, .clock = [this] { return ++ticks_, std::int64_t{1'000'000}; }}) {}
  void add_keys(int keys) {
    RespPeer peer(server.address());
    for (int i = 0; i < keys;) {
      std::vector<std::string> words = {"MSET"};
      for (const int end = std::min(keys, i + 2000); i < end; ++i) {
        words.push_back("key" + std::to_string(i));
        words.emplace_back("1");
      }
      ASSERT_EQ(peer.call(words), "+OK\r\n");
    }
  }
  int ticks() const { return ticks_; }

 private:
  std::atomic<int> ticks_ = 0;

 public:
  KvServer server;
};

TEST(Stepped, KeysAreListedInManyTicks) {
  for (const unsigned shards : {1U, 2U}) {
    CountedTicks counted(shards);
    constexpr int keys = 30'000;
    counted.add_keys(keys);
    RespPeer peer(counted.server.address());
    for (const std::string pattern : {"*", "key1*", "nothing*"}) {
      const int before = counted.ticks();
      const std::string reply = peer.call({"KEYS", pattern});
      EXPECT_THAT(reply, StartsWith(pattern == "*" ? "*30000\r\n" : pattern == "key1*" ? "*11111\r\n" : "*0\r\n"));
      EXPECT_GE(counted.ticks() - before, static_cast<int>(keys * key_scan_cost / turn_work_max / 2)) << pattern;
    }
  }
}

// The commands of a client keep their order. Others change keys meanwhile.
TEST(Stepped, KeysComesBetweenTheCommandsOfItsClient) {
  for (const unsigned shards : {1U, 3U}) {
    CountedTicks counted(shards);
    counted.add_keys(10'000);
    RespPeer peer(counted.server.address());
    RespPeer other(counted.server.address());
    peer.send(request({"SET", "a", "1"}) + request({"KEYS", "?"}) + request({"DEL", "a"}) + request({"KEYS", "?"}) +
              request({"PING"}) + request({"KEYS", std::string(9000, '*')}) + request({"KEYS", "?"}));
    EXPECT_EQ(other.call({"SET", "other", "1"}), "+OK\r\n");
    EXPECT_EQ(peer.receive(), "+OK\r\n");
    EXPECT_EQ(peer.receive(), "*1\r\n$1\r\na\r\n");
    EXPECT_EQ(peer.receive(), ":1\r\n");
    EXPECT_EQ(peer.receive(), "*0\r\n");
    EXPECT_EQ(peer.receive(), "+PONG\r\n");
    EXPECT_EQ(peer.receive(), "-ERR the pattern has 9000 bytes, and at most 8192 are allowed\r\n");
    EXPECT_EQ(peer.receive(), "*0\r\n");
  }
}

// Their listings end, and those of others go on.
TEST(Stepped, ClientsGoWhileTheirKeysAreListed) {
  CountedTicks counted(2);
  counted.add_keys(20'000);
  for (int i = 0; i < 20; ++i) {
    RespPeer peer(counted.server.address());
    peer.send(request({"KEYS", "*"}) + request({"KEYS", "*"}));
  }
  RespPeer peer(counted.server.address());
  EXPECT_THAT(peer.call({"KEYS", "key*"}), StartsWith("*20000\r\n"));
  RespPeer last(counted.server.address());
  last.send(request({"KEYS", "*"}));  // The server stops meanwhile.
}

TEST(Stepped, LongCommandsOfAPipelineAreExecutedInTicksOfTheirOwn) {
  for (const unsigned shards : {1U, 2U}) {
    CountedTicks counted(shards);
    constexpr int keys = 2 * turn_work_max / key_scan_cost;
    counted.add_keys(keys);
    RespPeer peer(counted.server.address());
    constexpr int commands = 20;
    std::string requests;
    for (int i = 0; i < commands; ++i) {
      requests += request({"SCAN", shards == 1 ? "0" : std::to_string(i % 2), "COUNT", "10000", "MATCH", "none"});
    }
    std::vector<std::string> many = {"EXISTS"};
    for (int i = 0; i < keys; ++i) many.push_back("key" + std::to_string(i));
    const bool alone = shards == 1;
    for (int i = 0; alone && i < commands; ++i) requests += request(many);
    const int before = counted.ticks();
    peer.send(requests);
    for (int i = 0; i < commands; ++i) EXPECT_THAT(peer.receive(), EndsWith("\r\n*0\r\n"));
    for (int i = 0; alone && i < commands; ++i) EXPECT_EQ(peer.receive(), ":" + std::to_string(keys) + "\r\n");
    // The first ones may be executed in the tick before.
    EXPECT_GE(counted.ticks() - before, alone ? commands : commands / 2) << shards;
    // Requests in front of the end of the client's direction are answered, too.
    RespPeer ending(counted.server.address());
    ending.send(requests);
    ::shutdown(ending.descriptor(), SHUT_WR);
    const std::string replies = ending.rest();
    EXPECT_EQ(std::ranges::count(replies, alone ? ':' : '*'), alone ? commands : 2 * commands);
  }
}

// The system has no memory for the list, although the budget has.
TEST(Stepped, AListForWhichTheSystemHasNoMemoryIsAnError) {
  const ServeProcess server({"--threads", "1", "--index", "0", "--transports", "none"});
  ASSERT_NE(server.address, "");
  RespPeer peer(server.address);
  constexpr int keys = 5000;
  for (int i = 0; i < keys; i += 50) {
    std::vector<std::string> words = {"MSET"};
    for (int j = i; j < i + 50; ++j) words.insert(words.end(), {std::string(7000, 'k') + std::to_string(j), "1"});
    ASSERT_EQ(peer.call(words), "+OK\r\n");
  }
  rlimit before = {};
  ASSERT_EQ(prlimit(server.process(), RLIMIT_DATA, nullptr, &before), 0);
  const rlimit little = {.rlim_cur = server.data_bytes() + (std::size_t{1} << 20), .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(server.process(), RLIMIT_DATA, &little, nullptr), 0);
  EXPECT_EQ(peer.call({"KEYS", "*"}), "-OOM there is no memory for the reply\r\n");
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n");
}

// Others have their turn between two of them.
TEST(Stepped, CommandsOfAPipelineAboutLongValuesAreExecutedInTicksOfTheirOwn) {
  const std::string last = std::to_string(turn_work_max);
  const std::string requests[] = {
      request({"BITCOUNT", "long"}),
      request({"BITPOS", "long", "1"}),
      request({"BITOP", "NOT", "other", "long"}),
      request({"COPY", "long", "other", "REPLACE"}),
      request({"SETRANGE", "new", last, "x"}) + request({"DEL", "new"}),
      request({"SETBIT", "new", last + "7", "1"}) + request({"DEL", "new"}),
      request({"MULTI"}) + request({"BITCOUNT", "long"}) + request({"EXEC"}),
  };
  for (const unsigned shards : {1U, 2U}) {
    CountedTicks counted(shards);
    RespPeer peer(counted.server.address());
    ASSERT_EQ(peer.call({"SETRANGE", "long", last, "x"}), ":" + std::to_string(turn_work_max + 1) + "\r\n");
    for (const std::string& one : requests) {
      constexpr int commands = 20;
      std::string pipeline;
      for (int i = 0; i < commands; ++i) pipeline += one;
      const int before = counted.ticks();
      peer.send(pipeline);
      for (auto i = commands * std::ranges::count(one, '*'); i != 0; --i) EXPECT_FALSE(peer.receive().starts_with('-'));
      // The first one may be executed in the tick before.
      EXPECT_GE(counted.ticks() - before, commands - 1) << one << shards;
    }
  }
}

TEST(Stepped, TransactionsThatScanAreExecutedInTicksOfTheirOwn) {
  CountedTicks counted(1);
  counted.add_keys(turn_work_max / key_scan_cost);
  RespPeer peer(counted.server.address());
  for (const std::string scan : {"KEYS none", "SCAN 0 COUNT 10000 MATCH none"}) {
    const int before = counted.ticks();
    constexpr int transactions = 20;
    std::string pipeline;
    for (int i = 0; i < transactions; ++i) pipeline += "MULTI\r\n" + scan + "\r\nEXEC\r\n";
    peer.send(pipeline);
    for (int i = 0; i < 3 * transactions; ++i) EXPECT_FALSE(peer.receive().starts_with('-'));
    EXPECT_GE(counted.ticks() - before, transactions - 1) << scan;
  }
}

// Nothing interrupts EXEC.
TEST(Stepped, KeysAndScansOfOneTransactionAreBounded) {
  KvServer server({.scan_work_max = 5'000'000});
  RespPeer peer(server.address());
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(peer.call({"SET", std::string(800, 'a') + std::to_string(i), "1"}), "+OK\r\n");
  }
  const std::string pattern = "*[" + std::string(800, 'b') + "]";
  EXPECT_EQ(peer.call({"MULTI"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"KEYS", pattern}), "+QUEUED\r\n");
  EXPECT_EQ(peer.call({"KEYS", "*9"}), "+QUEUED\r\n");
  EXPECT_EQ(peer.call({"SCAN", "0"}), "+QUEUED\r\n");
  EXPECT_EQ(peer.call({"DBSIZE"}), "+QUEUED\r\n");
  const std::string reply = peer.call({"EXEC"});
  const std::string refused = "-ERR the KEYS and SCAN before this one in the transaction have taken too long";
  EXPECT_THAT(reply, StartsWith("*4\r\n-ERR the pattern takes too long for so many keys: use SCAN\r\n" + refused));
  EXPECT_THAT(reply, EndsWith(refused + ": send several transactions\r\n:10\r\n"));
  EXPECT_THAT(peer.call({"KEYS", "*9"}), HasSubstr("aaa9\r\n"));
}

}  // namespace
}  // namespace hawser::kv
