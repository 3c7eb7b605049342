#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "kv/test/resp_peer.h"

// The same commands to Redis 7.0 and to this server: the replies must be equal, byte by byte.
namespace hawser::kv {
namespace {

using Words = std::vector<std::string>;

// Commands with correct and wrong arguments, and values that are at limits.
class CommandSource {
 public:
  explicit CommandSource(std::uint64_t seed) : random_(seed) {}

  Words next() {
    switch (random_.below(48)) {
      case 0:
      case 1: return {"GET", key()};
      case 2:
      case 3: return {"SET", key(), value()};
      case 4: return set_with_options();
      case 5: return {"SETNX", key(), value()};
      case 6: return {"GETDEL", key()};
      case 7: return getex();
      case 8: return several("DEL");
      case 9: return several("EXISTS");
      case 10: return several("MGET");
      case 11: return pairs();
      case 12: return {"INCR", key()};
      case 13: return {"DECR", key()};
      case 14: return {"INCRBY", key(), number()};
      case 15: return {"DECRBY", key(), number()};
      case 16: return {"APPEND", key(), value()};
      case 17: return {"STRLEN", key()};
      case 18: return {"GETRANGE", key(), number(), number()};
      case 19: return {"SETRANGE", key(), random_.chance(0.9) ? std::to_string(random_.below(40)) : number(), value()};
      case 20: return {"EXPIRE", key(), expiry()};
      case 21: return {"TTL", key()};
      case 22: return {"PERSIST", key()};
      case 23: return {"TYPE", key()};
      case 24:
        return {"EXPIRE", key(), expiry(), word({"NX", "XX", "GT", "LT", "bad"}), word({"NX", "XX", "gt", "LT"})};
      case 25: return {"SETEX", key(), expiry(), value()};
      case 26: return {"GETSET", key(), value()};
      case 27: return {"ECHO", value()};
      case 28: return {"PING", value()};
      case 29: return several("UNLINK");
      case 30: return {"SELECT", number()};
      case 31: return wrong();
      case 32: return {"PEXPIREAT", key(), "9999999999999"};
      case 33: return {"SUBSTR", key(), number(), number()};
      case 34: return {random_.chance(0.3) ? "MSETNX" : "INCRBYFLOAT", key(), floating()};
      case 35: return {"SETBIT", key(), offset(), bit()};
      case 36: return {"GETBIT", key(), offset()};
      case 37: return bits("BITCOUNT");
      case 38: return bits("BITPOS");
      case 39: return bitop();
      case 40: return {word({"RENAME", "RENAMENX"}), key(), key()};
      case 41: return copy();
      case 42: return {"OBJECT", word({"FREQ", "nosuch", "freq"}), key()};
      case 43: return {"MULTI"};
      case 44: return several("WATCH");
      case 45:
      case 46: return {"EXEC"};
      default: return {word({"UNWATCH", "DISCARD", "EXEC", "MULTI"})};
    }
  }

 private:
  std::string word(std::initializer_list<const char*> words) { return *(words.begin() + random_.below(words.size())); }
  std::string key() { return "key" + std::to_string(random_.below(12)); }
  std::string number() {
    return random_.chance(0.5)
               ? std::to_string(static_cast<int>(random_.below(40)) - 20)
               : word({"9223372036854775807", "-9223372036854775808", "9223372036854775808", "", "-", "+1", "01", "1 ",
                       " 1", "-0", "1.5", "abc", "-9223372036854775807", "2147483648"});
  }
  // Times far away or past, so that nothing expires between the two servers. Two valid ones differ by 100 s at least:
  // GT and LT compare them, and the servers read their clocks at different times.
  std::uint64_t seconds() { return 20'000 + 100 * times_++; }
  std::string expiry() {
    if (random_.chance(0.6)) return std::to_string(seconds());
    if (random_.chance(0.1)) return std::to_string(9'223'000'000'000 + seconds());
    return word({"0", "-1", "-5", "abc", "", "9223372036854775807", "-9223372036854775808", "9223372036854775",
                 "92233720368547758"});
  }
  std::string value() {
    if (random_.chance(0.3)) return number();
    std::string text(random_.below(20), 'x');
    for (char& c : text) c = static_cast<char>(random_.below(256));
    return text;
  }
  Words several(const std::string& name) {
    Words words{name};
    for (std::uint64_t i = 0; i <= random_.below(4); ++i) words.push_back(key());
    return words;
  }
  std::string offset() {
    return random_.chance(0.8) ? std::to_string(random_.below(200))
                               : word({"-1", "4294967296", "01", "", "abc", "1.5"});
  }
  std::string bit() { return random_.chance(0.9) ? word({"0", "1"}) : number(); }
  std::string floating() {
    return word(
        {"1", "0.1", "-0.1", "1e3", "3.0", "-5.5e-3", " 1", "1 ", "abc", "", "nan", "inf", "1e5000", "0x10", "+2"});
  }
  Words bits(const std::string& name) {
    Words words{name, key()};
    if (name == "BITPOS") words.push_back(bit());
    for (std::uint64_t i = random_.below(4); i > 0; --i) {
      words.push_back(words.size() >= 4 && random_.chance(0.4) ? word({"BIT", "BYTE", "bit", "bad"}) : number());
    }
    return words;
  }
  Words bitop() {
    Words words{"BITOP", word({"AND", "OR", "XOR", "NOT", "not", "bad"}), key()};
    for (std::uint64_t i = 0; i <= random_.below(3); ++i) words.push_back(key());
    return words;
  }
  Words copy() {
    Words words{"COPY", key(), key()};
    for (std::uint64_t i = random_.below(3); i > 0; --i) {
      words.push_back(word({"REPLACE", "replace", "DB", "bad"}));
      if (words.back() == "DB") words.push_back(word({"0", "1", "x"}));
    }
    return words;
  }
  Words pairs() {
    Words words{random_.chance(0.7) ? "MSET" : "MSETNX"};
    for (std::uint64_t i = 0; i <= random_.below(5); ++i) words.push_back(i % 2 == 0 ? key() : value());
    return words;
  }
  Words set_with_options() {
    Words words{"SET", key(), value()};
    for (std::uint64_t i = 0; i <= random_.below(3); ++i) {
      const std::string option = word({"NX", "XX", "GET", "KEEPTTL", "EX", "PX", "PXAT", "EXAT", "xx", "ex", "bad"});
      words.push_back(option);
      if (option == "PXAT" || option == "EXAT") {
        words.push_back(random_.chance(0.7) ? (option == "EXAT" ? "9999999999" : "9999999999999")
                                            : word({"0", "-1", "q"}));
      } else if (option.size() == 2 && option != "NX" && option != "XX" && option != "xx" && random_.chance(0.9)) {
        words.push_back(option == "PX" ? std::to_string(1000 * seconds()) : expiry());
      }
    }
    return words;
  }
  Words getex() {
    Words words{"GETEX", key()};
    for (std::uint64_t i = 0; i < random_.below(3); ++i) {
      words.push_back(word({"PERSIST", "EX", "persist", "KEEPTTL", "PXAT"}));
      if (random_.chance(0.6)) words.push_back(word({"20000", "9999999999999", "0", "-1"}));
    }
    return words;
  }
  // Names and numbers of arguments that are wrong, and commands about the connection.
  Words wrong() {
    static const std::vector<Words> all = {
        {"GET"},
        {"get", "a", "b"},
        {"SET", "a"},
        {"nosuch"},
        {"NoSuch", "a b", "c\r\nd", std::string(200, 'e')},
        {"MSET", "a"},
        {"MSET", "a", "b", "c"},
        {"TTL"},
        {"EXPIRE", "a"},
        {"SELECT", "0"},
        {"SELECT", "16"},
        {"CLIENT", "SETNAME", "a b"},
        {"CLIENT", "SETNAME", "ab"},
        {"CLIENT", "GETNAME"},
        {"CLIENT", "nosuch"},
        {"CLIENT", "GETNAME", "x"},
        {"CONFIG", "nosuch"},
        {"CONFIG", "GET", "nosuch"},
        {"COMMAND", "nosuch"},
        {"HELLO", "9"},
        {"HELLO", "x"},
        {"HELLO", "2", "bad"},
        {"FLUSHALL", "bad"},
        {"FLUSHALL", "sync", "x"},
        {"SCAN", "x"},
        {"SCAN", "0", "count"},
        {"SCAN", "0", "count", "0"},
        {"SCAN", "0", "count", "x"},
        {"PING", "a", "b"},
        {"ECHO"},
        {"KEYS"},
        {"DBSIZE", "x"},
        {"RESET"},
        {"PING"},
        {"KEYS", "nothing*"},
        {"FLUSHDB"},
        {"DBSIZE"},
        {"CONFIG", "GET"},
        {"SETRANGE", "key1", "99999999999999", "x"},
        {std::string(200, 'n'), "x"},
        {""},
        {"GETRANGE", "nosuch", "x", "1"},
        {"GETEX", "nosuch", "EX", "0"},
        {"CLIENT", "TRACKING", "OFF"},
        {"CLIENT", "TRACKINGINFO"},
        {"CLIENT", "UNPAUSE"},
        {"CLIENT", "UNBLOCK", "5"},
        {"CLIENT", "UNBLOCK", "x"},
        {"CLIENT", "UNBLOCK", "5", "error"},
        {"CLIENT", "UNBLOCK", "5", "x"},
        {"OBJECT", "ENCODING"},
        {"OBJECT", "NOTHING"},
        {"OBJECT", "ENCODING", "a", "b"},
        {"CLIENT", "CACHING", "YES"},
        {"CLIENT", "NO-EVICT", "on"},
        {"CLIENT", "NO-EVICT", "x"},
        {"CLIENT", "KILL", "1.2.3.4:5"},
        {"CLIENT", "KILL", "ID", "0"},
        {"CLIENT", "KILL", "ADDR", "1.2.3.4:5"},
        {"CLIENT", "LIST", "TYPE", "master"},
        {"CLIENT", "REPLY", "on"},
        {"CLIENT", "GETREDIR"},
        {"COMMAND", "GETKEYS", "MSET", "a", "1", "b", "2"},
        {"COMMAND", "GETKEYS", "BITOP", "AND", "a", "b", "c"},
        {"COMMAND", "GETKEYS", "PING"},
        {"COMMAND", "GETKEYS", "GET"},
        {"WAIT", "0", "0"},
        {"WAIT", "x", "0"},
        {"WAIT", "0", "-1"},
        {"TIME", "x"},
        {"WATCH"},
        {"EXEC", "x"},
        {"OBJECT", "ENCODING", "nosuch"},
    };
    return all[random_.below(all.size())];
  }

  Random random_;
  std::uint64_t times_ = 0;
};

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += "[" + word + "] ";
  return text;
}

// True if both replies are times to live that differ less than two valid times of a CommandSource do.
bool close_times(const std::string& left, const std::string& right) {
  return left.front() == ':' && right.front() == ':' &&
         std::abs(std::stoll(left.substr(1)) - std::stoll(right.substr(1))) < 90;
}

// True if the lines of both replies are equal, or are close times.
bool close_replies(std::string_view left, std::string_view right) {
  while (!left.empty() && !right.empty()) {
    const std::size_t left_end = left.find("\r\n");
    const std::size_t right_end = right.find("\r\n");
    if (left_end == std::string_view::npos || right_end == std::string_view::npos) return left == right;
    const std::string one(left.substr(0, left_end));
    const std::string other(right.substr(0, right_end));
    const bool times = one.size() > 4 && other.size() > 4 && one.find_first_not_of("0123456789", 1) == one.npos &&
                       other.find_first_not_of("0123456789", 1) == other.npos;
    if (one != other && !(times && close_times(one, other))) return false;
    left.remove_prefix(left_end + 2);
    right.remove_prefix(right_end + 2);
  }
  return left == right;
}

void compare(unsigned shards, std::uint64_t seed, int commands) {
  RedisServer redis;
  if (!redis.ready()) GTEST_SKIP() << "redis-server is not installed";
  KvServer server({.shards = shards});
  RespPeer theirs(redis.address());
  RespPeer ours(server.address());
  // A second client changes keys that the first one watches. It is in no transaction.
  RespPeer their_other(redis.address());
  RespPeer our_other(server.address());
  CommandSource source(seed);
  constexpr int pipeline = 50;
  for (int i = 0; i < commands; i += pipeline) {
    const Words change{"SET", "key" + std::to_string(i / pipeline % 12), std::to_string(i)};
    EXPECT_EQ(our_other.call(change), their_other.call(change));
    std::vector<Words> sent;
    std::string bytes;
    for (int j = 0; j < pipeline; ++j) {
      sent.push_back(source.next());
      bytes += request(sent.back());
    }
    theirs.send(bytes);
    ours.send(bytes);
    for (const Words& words : sent) {
      const std::string expected = theirs.receive();
      const std::string got = ours.receive();
      if (words[0] == "TTL" && expected.size() > 1 && got.size() > 1 && close_times(expected, got)) continue;
      // Times to live among the replies of a transaction.
      if (words[0] == "EXEC" && close_replies(expected, got)) continue;
      ASSERT_EQ(got, expected) << joined(words);
    }
  }
}

TEST(Differential, OneShard) { compare(1, 11, 20'000); }
TEST(Differential, ThreeShards) { compare(3, 12, 20'000); }

TEST(Differential, ProtocolErrorsAndInlineCommands) {
  RedisServer redis;
  if (!redis.ready()) GTEST_SKIP() << "redis-server is not installed";
  KvServer server;
  const std::vector<std::string> streams = {
      "*1\r\n$4\r\nPING\r\n*x\r\n",
      "*1\r\n:4\r\n",
      "*2\r\n$3\r\nGET\r\n$-1\r\n",
      "*2\r\n$3\r\nGET\r\n$99999999999\r\n",
      "*2\r\n$3\r\nGET\r\n$abc\r\n",
      "*99999999999\r\n",
      "*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n",
      "PING\r\nping hello\n\r\n\r\nECHO \"a\\x41\\n\\\"\"\r\nECHO 'it\\'s'\r\nQUIT\r\n",
      "ECHO \"unbalanced\r\n",
      "ECHO 'a'b\r\n",
      "SET inline value\r\nGET inline\r\nGET\r\nDEL inline\r\nnosuch a b\r\nQUIT\r\nPING\r\n",
      "*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n",
  };
  for (const std::string& stream : streams) {
    RespPeer theirs(redis.address());
    RespPeer ours(server.address());
    theirs.send(stream);
    ours.send(stream);
    EXPECT_EQ(ours.rest(), theirs.rest()) << stream;
  }
}

TEST(Differential, Resp3) {
  RedisServer redis;
  if (!redis.ready()) GTEST_SKIP() << "redis-server is not installed";
  KvServer server;
  RespPeer theirs(redis.address());
  RespPeer ours(server.address());
  EXPECT_EQ(ours.call({"HELLO", "3"}).substr(0, 30), theirs.call({"HELLO", "3"}).substr(0, 30));
  for (const Words& words : std::vector<Words>{{"GET", "a"},
                                               {"MGET", "a", "b"},
                                               {"SET", "a", "1"},
                                               {"MGET", "a", "b"},
                                               {"CONFIG", "GET", "save"},
                                               {"CLIENT", "GETNAME"},
                                               {"SET", "a", "2", "XX", "GET"},
                                               {"SET", "b", "2", "XX"},
                                               {"RESET"},
                                               {"GET", "nosuch"},
                                               {"CONFIG", "GET", "save"}}) {
    EXPECT_EQ(ours.call(words), theirs.call(words)) << joined(words);
  }
}

}  // namespace
}  // namespace hawser::kv
