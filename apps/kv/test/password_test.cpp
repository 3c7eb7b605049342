// The password of a server, for clients of Redis and of Hawser.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "hawser/schema.h"
#include "kv/password_gate.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

using Words = std::vector<std::string>;

const std::string right_password = "a long secret with spaces & \"quotes\"";
const std::string no_auth = "-NOAUTH Authentication required.\r\n";
const std::string wrong_pass = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

// A server with the password, whose log is kept.
struct Guarded {
  explicit Guarded(unsigned shards = 1) {
    ServerOptions options;
    options.loop.log = LogSink([this](LogLevel, std::string_view, std::string_view text) {
      const std::lock_guard lock(mutex);
      log += std::string(text) + "\n";
    });
    server = std::make_unique<KvServer>(StoreOptions{.shards = shards}, options, nullptr, gate);
  }
  std::string address() const { return server->address(); }

  std::mutex mutex;
  std::string log;
  const std::shared_ptr<PasswordGate> gate = std::make_shared<PasswordGate>(right_password);
  std::unique_ptr<KvServer> server;
};

std::string words_text(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

// Without what differs between servers: the id of the connection, and the version.
std::string comparable(const Words& words, std::string reply) {
  if (words[0] != "HELLO" || reply.front() == '-') return reply;
  const std::size_t version = reply.find("version");
  if (version != std::string::npos) reply.resize(version);
  return reply;
}

TEST(Password, RepliesAreThoseOfRedis) {
  RedisServer redis(right_password);
  if (!redis.ready()) GTEST_SKIP() << "redis-server is not installed";
  Guarded guarded;
  RespPeer theirs(redis.address());
  RespPeer ours(guarded.address());
  for (const Words& words : std::vector<Words>{
           {"PING"},
           {"GET", "a"},
           {"get"},
           {"SET", "a"},
           {"NOSUCH", "a", "b"},
           {"ECHO", "a"},
           {"CLIENT", "ID"},
           {"CONFIG", "GET", "requirepass"},
           {"INFO"},
           {"DBSIZE"},
           {"SELECT", "0"},
           {"FLUSHALL"},
           {"COMMAND", "COUNT"},
           {"AUTH"},
           {"AUTH", "a", "b", "c"},
           {"AUTH", "wrong"},
           {"AUTH", ""},
           {"AUTH", "default", "wrong"},
           {"AUTH", "other", right_password},
           {"auth", "Default", right_password},
           {"HELLO"},
           {"HELLO", "3"},
           {"HELLO", "3", "AUTH"},
           {"HELLO", "3", "AUTH", "default"},
           {"HELLO", "3", "AUTH", "default", "wrong"},
           {"HELLO", "9", "AUTH", "default", right_password},
           {"HELLO", "3", "SETNAME", "me"},
           {"HELLO", "3", "SETNAME", "a b", "AUTH", "default", right_password},
           {"PING"},
           {"RESET"},
           {"PING"},
           {"AUTH", right_password},
           {"PING"},
           {"GET", "a"},
           {"CLIENT", "GETNAME"},
           {"AUTH", "wrong"},
           {"PING"},
           {"HELLO", "3", "AUTH", "other", "wrong"},
           {"GET", "a"},
           {"RESET"},
           {"PING"},
           {"HELLO", "3", "AUTH", "default", right_password, "SETNAME", "me"},
           {"GET", "a"},
           {"CLIENT", "GETNAME"},
           {"HELLO", "2"},
           {"GET", "a"},
           {"RESET"},
           {"GET", "a"},
           {"AUTH", "default", right_password},
           {"GET", "a"},
           {"QUIT"},
       }) {
    EXPECT_EQ(comparable(words, ours.call(words)), comparable(words, theirs.call(words))) << words_text(words);
  }
  EXPECT_EQ(ours.rest(), theirs.rest());
  const std::string quoted = "\"a long secret with spaces & \\\"quotes\\\"\"";
  for (const std::string& stream : Words{
           "*11\r\n$4\r\nPING\r\n",
           "*1048577\r\n",
           "*2\r\n$4\r\nAUTH\r\n$16385\r\n",
           "*2\r\n$4\r\nAUTH\r\n$1000000000\r\n",
           "*10\r\n$4\r\nPING\r\n$16384\r\n" + std::string(100, 'x'),
           request({"AUTH", right_password}) + "*11\r\n$4\r\nMGET\r\n" +
               [] {
                 std::string keys;
                 for (int i = 0; i < 10; ++i) keys += "$1\r\nk\r\n";
                 return keys;
               }() +
               request({"QUIT"}),
           request({"AUTH", right_password}) + request({"RESET"}) + "*11\r\n",
           "PING\r\nAUTH wrong\r\nAUTH " + quoted + "\r\nPING\r\nQUIT\r\n",
           "QUIT\r\nPING\r\n",
           request({"QUIT"}),
       }) {
    RespPeer their_stream(redis.address());
    RespPeer our_stream(guarded.address());
    for (RespPeer* const peer : {&their_stream, &our_stream}) {
      peer->send(stream);
      shutdown(peer->descriptor(), SHUT_WR);
    }
    EXPECT_EQ(our_stream.rest(), their_stream.rest()) << stream;
  }
}

TEST(Password, RepliesWithoutAPasswordAreThoseOfRedis) {
  RedisServer redis;
  if (!redis.ready()) GTEST_SKIP() << "redis-server is not installed";
  KvServer server;
  RespPeer theirs(redis.address());
  RespPeer ours(server.address());
  for (const Words& words : std::vector<Words>{{"AUTH"},
                                               {"AUTH", "a"},
                                               {"AUTH", "default", "a"},
                                               {"AUTH", "other", "a"},
                                               {"HELLO", "3", "AUTH", "default", "a"},
                                               {"HELLO", "3", "AUTH", "other", "a"},
                                               {"AUTH", "a", "b", "c"},
                                               {"RESET"},
                                               {"PING"}}) {
    EXPECT_EQ(comparable(words, ours.call(words)), comparable(words, theirs.call(words))) << words_text(words);
  }
}

// Nothing before AUTH is executed, and everything behind it is, however the bytes arrive.
TEST(Password, PipelinedCommandsAreExecutedFromTheRightPasswordOn) {
  for (const unsigned shards : {1U, 3U}) {
    Guarded guarded(shards);
    std::string requests = request({"SET", "a", "1"}) + request({"MSET", "b", "1", "c", "1", "d", "1"}) +
                           request({"AUTH", "wrong"}) + request({"GET", "a"});
    std::string replies = no_auth + no_auth + wrong_pass + no_auth;
    requests += request({"AUTH", right_password}) + request({"MGET", "a", "b", "c", "d"}) + request({"SET", "a", "2"}) +
                request({"GET", "a"}) + request({"DBSIZE"});
    replies += "+OK\r\n*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n+OK\r\n$1\r\n2\r\n:1\r\n";
    requests += request({"RESET"}) + request({"GET", "a"}) + request({"EXEC"}) + request({"KEYS", "*"}) +
                request({"AUTH", "default", right_password}) + request({"DEL", "a"}) + request({"QUIT"});
    replies += "+RESET\r\n" + no_auth + "-EXECABORT Transaction discarded because of: " + no_auth.substr(1) + no_auth +
               "+OK\r\n:1\r\n+OK\r\n";
    for (const std::size_t step : {requests.size(), std::size_t{1}, std::size_t{7}}) {
      RespPeer peer(guarded.address());
      for (std::size_t at = 0; at < requests.size(); at += step) peer.send(requests.substr(at, step));
      ASSERT_EQ(peer.rest(), replies) << shards << " shards, steps of " << step;
    }
  }
}

TEST(Password, TenWrongOnesEndTheConnection) {
  Guarded guarded;
  RespPeer other(guarded.address());
  ASSERT_EQ(other.call({"AUTH", right_password}), "+OK\r\n");
  RespPeer peer(guarded.address());
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += request({"AUTH", "guess" + std::to_string(i)});
  requests += request({"AUTH", right_password}) + request({"SET", "a", "1"});
  peer.send(requests);
  std::string expected;
  for (unsigned i = 0; i < PasswordGate::wrong_max; ++i) expected += wrong_pass;
  EXPECT_EQ(peer.rest(), expected);
  EXPECT_EQ(guarded.gate->wrong(), PasswordGate::wrong_max);
  EXPECT_EQ(other.call({"EXISTS", "a"}), ":0\r\n");
  EXPECT_NE(other.call({"INFO", "stats"}).find("wrong_passwords:10\r\n"), std::string::npos);
  const std::lock_guard lock(guarded.mutex);
  EXPECT_NE(guarded.log.find("10 wrong passwords"), std::string::npos) << guarded.log;
}

// Bytes that a client announces before it has authenticated cost nothing.
TEST(Password, AnnouncedBytesCostNothing) {
  Guarded guarded;
  for (const std::string& announced : Words{"*2\r\n$4\r\nAUTH\r\n$1073741824\r\n", "*2\r\n$4\r\nAUTH\r\n$67108864\r\n",
                                            "*1000000\r\n", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$60000000\r\n"}) {
    RespPeer peer(guarded.address());
    peer.send(announced + std::string(100'000, 'x'));
    EXPECT_TRUE(peer.rest().starts_with("-ERR Protocol error: ")) << announced;
  }
  RespPeer peer(guarded.address());
  ASSERT_EQ(peer.call({"AUTH", right_password}), "+OK\r\n");
  const std::string value(1'000'000, 'v');
  EXPECT_EQ(peer.call({"SET", "a", value}), "+OK\r\n");
  EXPECT_EQ(peer.call({"STRLEN", "a"}), ":1000000\r\n");
}

TEST(Password, IsNeverShown) {
  Guarded guarded;
  const std::string guess = "almost the secret";
  std::string seen;
  {
    RespPeer peer(guarded.address());
    seen += peer.call({"AUTH", guess}) + peer.call({"AUTH", "default", right_password});
    for (const Words& words : std::vector<Words>{{"INFO"},
                                                 {"INFO", "everything"},
                                                 {"CONFIG", "GET", "*"},
                                                 {"CONFIG", "GET", "requirepass"},
                                                 {"CLIENT", "INFO"},
                                                 {"COMMAND"},
                                                 {"AUTH", guess},
                                                 {"HELLO", "3", "AUTH", "default", guess},
                                                 {"KEYS", "*"}}) {
      seen += peer.call(words);
    }
    for (unsigned i = 0; i < PasswordGate::wrong_max; ++i) peer.send(request({"AUTH", guess}));
    seen += peer.rest();
  }
  guarded.server = nullptr;  // The log is complete.
  const std::string everything = seen + guarded.log;
  for (const std::string& hidden : {right_password, guess})
    EXPECT_EQ(everything.find(hidden), std::string::npos) << everything;
}

// A password over HTTP, pages, and bytes that are neither protocol.
TEST(Password, OtherProtocolsShowNothing) {
  Guarded guarded;
  for (const char* const path : {"/", "/metrics", "/connections", "/log", "/status"}) {
    RespPeer peer(guarded.address());
    peer.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n");
    const std::string reply = peer.rest();
    EXPECT_TRUE(reply.empty() || reply.starts_with("-")) << reply;
    EXPECT_EQ(reply.find("hawser_"), std::string::npos) << reply;
  }
}

// ---- Clients of Hawser ----

template <class R>
std::string outcome_of(const Result<R>& result) {
  return result ? "ok" : std::string(to_string(result.error().code));
}

// Calls every method, and returns the outcomes without repetitions.
Task<std::string> use_all(std::string address, std::vector<std::string> passwords, const char* transport) {
  std::string outcomes;
  ClientOptions options;
  options.transports.required = transport;
  for (std::string& password : passwords) options.interceptors.push_back(send_password(password));
  Client link(options);
  const Result<void> connected = co_await link.connect(address);
  EXPECT_TRUE(connected);
  if (!connected) co_return "no connection";
  KvClient client(link);
  const auto note = [&outcomes](const std::string& outcome) {
    if (!outcomes.ends_with(outcome + " ")) outcomes += outcome + " ";
  };
  const auto done1 = co_await client.set("a", "1");
  note(outcome_of(done1));
  const auto done2 = co_await client.get("a");
  note(outcome_of(done2));
  const auto done3 = co_await client.get_many(std::vector<std::string>(1, "a"));
  note(outcome_of(done3));
  const auto done4 = co_await client.compare_and_set("b", 0, "1");
  note(outcome_of(done4));
  const auto done5 = co_await client.increment("c", 1);
  note(outcome_of(done5));
  const auto done6 = co_await client.remove("a");
  note(outcome_of(done6));
  const auto done7 = co_await link.call<&Service::directory>();
  note(outcome_of(done7));
  const auto done8 = co_await link.call<&Service::read>(std::string_view("a"));
  note(outcome_of(done8));
  const auto done9 = co_await link.call<&Service::get>(std::string_view("a"));
  note(outcome_of(done9));
  // The server answers these by itself.
  const auto done10 = co_await link.call<&schema::list>(std::string_view());
  note(outcome_of(done10));
  co_return outcomes;
}

TEST(Password, EveryCallOfAClientOfHawserNeedsIt) {
  for (const unsigned shards : {1U, 3U}) {
    Guarded guarded(shards);
    for (const char* const transport : {"stream", "shm"}) {
      EXPECT_EQ(sync_wait(use_all(guarded.address(), {}, transport)), "unauthenticated ");
      // The tenth one ends the connection.
      const std::string wrong = sync_wait(use_all(guarded.address(), {"wrong"}, transport));
      EXPECT_TRUE(wrong.starts_with("unauthenticated ") && wrong.find("ok") == std::string::npos) << wrong;
      EXPECT_EQ(sync_wait(use_all(guarded.address(), {right_password}, transport)), "ok ");
      // A part of the password, and more than it, are wrong as well.
      for (const std::string& other :
           {right_password.substr(2), right_password + "x", right_password + right_password}) {
        const std::string outcome = sync_wait(use_all(guarded.address(), {other}, transport));
        EXPECT_TRUE(outcome.starts_with("unauthenticated ") && outcome.find("ok") == std::string::npos) << outcome;
      }
    }
    RespPeer peer(guarded.address());
    ASSERT_EQ(peer.call({"AUTH", right_password}), "+OK\r\n");
    EXPECT_EQ(peer.call({"GET", "c"}), "$1\r\n2\r\n");  // The right password has been used twice.
    const std::lock_guard lock(guarded.mutex);
    EXPECT_EQ(guarded.log.find(right_password), std::string::npos) << guarded.log;
  }
}

// Calls at the same time, of which one has the right password.
TEST(Password, TenWrongOnesEndTheConnectionOfAClientOfHawser) {
  Guarded guarded;
  sync_wait([](std::string address, PasswordGate& gate) -> Task<void> {
    ClientOptions options;
    options.transports.required = "stream";
    options.interceptors.push_back(send_password("wrong"));
    Client link(options);
    const Result<void> connected = co_await link.connect(address);
    EXPECT_TRUE(connected);
    KvClient client(link, ReadPolicy::calls);
    for (unsigned i = 1; i < PasswordGate::wrong_max; ++i) {
      const auto value = co_await client.get("a");
      EXPECT_TRUE(!value && value.error().code == ErrorCode::unauthenticated);
    }
    EXPECT_TRUE(link.connected());
    const auto value = co_await client.get("a");
    EXPECT_FALSE(value);
    EXPECT_FALSE(link.connected());
    EXPECT_EQ(gate.wrong(), PasswordGate::wrong_max);
  }(guarded.address(), *guarded.gate));
  EXPECT_EQ(sync_wait(use_all(guarded.address(), {right_password}, "stream")), "ok ");
}

// ---- Password files ----

TEST(PasswordFile, HasOneLine) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "password";
  const auto read = [&](const std::string& content) -> std::string {
    std::ofstream(file, std::ios::binary) << content;
    const Result<std::string> password = read_password(file);
    if (password) return "ok " + *password;
    EXPECT_NE(password.error().text.find(file), std::string::npos);
    EXPECT_EQ(password.error().text.find("hunter"), std::string::npos) << password.error().text;
    return password.error().text.substr(password.error().text.find(file) + file.size() + 1);
  };
  EXPECT_EQ(read("hunter2"), "ok hunter2");
  EXPECT_EQ(read("hunter2\n"), "ok hunter2");
  EXPECT_EQ(read("hunter2\r\n"), "ok hunter2");
  EXPECT_EQ(read("hunter 2\n"), "ok hunter 2");
  EXPECT_EQ(read("h\xc3\xbcnter"), "ok h\xc3\xbcnter");
  EXPECT_EQ(read(std::string(password_bytes_max, 'p') + "\n"), "ok " + std::string(password_bytes_max, 'p'));
  EXPECT_NE(read(std::string(password_bytes_max + 1, 'p')).find("1024"), std::string::npos);
  EXPECT_NE(read(std::string(1'000'000, 'p')).find("1024"), std::string::npos);
  EXPECT_NE(read("").find("is empty"), std::string::npos);
  EXPECT_NE(read("\n").find("is empty"), std::string::npos);
  EXPECT_NE(read("hunter2\nhunter3\n").find("one line"), std::string::npos);
  EXPECT_NE(read(std::string("hunter2\0", 8)).find("control"), std::string::npos);
  EXPECT_NE(read(" hunter2").find("space"), std::string::npos);
  EXPECT_NE(read("hunter2 \n").find("space"), std::string::npos);
  for (const std::string& absent : {folder.path().string(), folder.path().string() + "/nosuch"}) {
    const Result<std::string> password = read_password(absent);
    ASSERT_FALSE(password);
    EXPECT_NE(password.error().text.find("cannot be read"), std::string::npos) << password.error().text;
  }
  EXPECT_THROW(static_cast<void>(send_password("")), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(send_password("two\nlines")), std::invalid_argument);
}

}  // namespace
}  // namespace hawser::kv
