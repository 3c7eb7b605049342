// Clients without the password that try to cost a server much, and passwords that change while it runs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "kv/password_files.h"
#include "kv/password_gate.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

constexpr const char* old_password = "the password of yesterday";
constexpr const char* new_password = "the password of tomorrow";

struct GatedServer {
  GatedServer() {
    ServerOptions options;
    options.loop.log = LogSink([](LogLevel, std::string_view, std::string_view) {});
    server = std::make_unique<KvServer>(StoreOptions{}, options, nullptr, gate);
  }
  const std::shared_ptr<PasswordGate> gate = std::make_shared<PasswordGate>(std::string(old_password));
  std::unique_ptr<KvServer> server;
};

ClientOptions client_with(const char* password) {
  ClientOptions options;
  options.transports.required = "stream";
  if (password != nullptr) options.interceptors.push_back(send_password(password));
  return options;
}

// Calls until `calls` have been refused, and returns how many were refused while the connection was there.
Task<unsigned> refused_calls(std::string address, const char* password, std::string value, unsigned calls) {
  Client link(client_with(password));
  const Result<void> connected = co_await link.connect(address);
  EXPECT_TRUE(connected);
  KvClient client(link, ReadPolicy::calls);
  unsigned refused = 0;
  for (unsigned i = 0; i < calls && link.connected(); ++i) {
    const auto done = co_await client.set("a", value);
    EXPECT_FALSE(done);
    if (!done && done.error().code == ErrorCode::unauthenticated && link.connected()) ++refused;
  }
  co_return refused;
}

// A new connection may lie at the address of one that has ended.
TEST(PasswordLimits, EachConnectionHasItsOwnCount) {
  GatedServer one;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(sync_wait(refused_calls(one.server->address(), "wrong", "v", PasswordGate::wrong_max - 1)),
              PasswordGate::wrong_max - 1)
        << i;
  }
  EXPECT_EQ(one.gate->wrong(), 100U * (PasswordGate::wrong_max - 1));
  EXPECT_EQ(sync_wait(refused_calls(one.server->address(), "wrong", "v", 100)), PasswordGate::wrong_max - 1);
}

// More connections with wrong passwords than 1,024, at the same time: none is counted anew.
TEST(PasswordLimits, AllConnectionsAreCounted) {
  GatedServer one;
  sync_wait([](std::string address) -> Task<void> {
    constexpr std::size_t connections = 1100;
    std::vector<std::unique_ptr<Client>> links;
    for (std::size_t i = 0; i < connections; ++i) {
      links.push_back(std::make_unique<Client>(client_with("wrong")));
      const Result<void> connected = co_await links.back()->connect(address);
      if (!connected) {
        ADD_FAILURE() << connected.error().text;
        co_return;
      }
    }
    for (unsigned round = 1; round <= PasswordGate::wrong_max; ++round) {
      for (const auto& link : links) {
        KvClient client(*link, ReadPolicy::calls);
        const auto value = co_await client.get("a");
        EXPECT_FALSE(value);
      }
    }
    for (const auto& link : links) EXPECT_FALSE(link->connected());
  }(one.server->address()));
  EXPECT_EQ(one.gate->wrong(), 1100U * PasswordGate::wrong_max);
}

// A large request is received before its password is compared.
TEST(PasswordLimits, TheSecondLargeRequestEndsTheConnection) {
  GatedServer one;
  const std::string large(1'000'000, 'v');
  for (const char* const password : {static_cast<const char*>(nullptr), "wrong"}) {
    EXPECT_EQ(sync_wait(refused_calls(one.server->address(), password, large, 100)), 1U);
  }
  // Small ones without a password are refused for as long as the client likes.
  EXPECT_EQ(sync_wait(refused_calls(one.server->address(), nullptr, "v", 50)), 50U);
  EXPECT_EQ(one.gate->wrong(), 2U);
}

// ---- Other passwords ----

std::string native_outcome(const std::string& address, const char* password) {
  return sync_wait([](std::string to, const char* with) -> Task<std::string> {
    Client link(client_with(with));
    const Result<void> connected = co_await link.connect(to);
    if (!connected) co_return connected.error().text;
    KvClient client(link, ReadPolicy::calls);
    const auto value = co_await client.get("a");
    co_return value ? "ok" : std::string(to_string(value.error().code));
  }(address, password));
}
std::string redis_outcome(const std::string& address, const char* password) {
  RespPeer peer(address);
  return peer.call({"AUTH", password});
}

TEST(PasswordLimits, PasswordsAreReplaced) {
  GatedServer one;
  const std::string address = one.server->address();
  RespPeer connected(address);
  ASSERT_EQ(connected.call({"AUTH", old_password}), "+OK\r\n");
  one.gate->set_passwords({new_password, old_password});
  for (const char* const password : {new_password, old_password}) {
    EXPECT_EQ(native_outcome(address, password), "ok");
    EXPECT_EQ(redis_outcome(address, password), "+OK\r\n");
  }
  EXPECT_EQ(native_outcome(address, "the password of today"), "unauthenticated");
  one.gate->set_passwords({new_password});
  one.gate->set_passwords({new_password});
  EXPECT_EQ(native_outcome(address, old_password), "unauthenticated");
  EXPECT_TRUE(redis_outcome(address, old_password).starts_with("-WRONGPASS"));
  EXPECT_EQ(native_outcome(address, new_password), "ok");
  EXPECT_EQ(connected.call({"PING"}), "+PONG\r\n");
  EXPECT_EQ(connected.call({"EXISTS", "a"}), ":0\r\n");
}

// Threads compare passwords while others replace them.
TEST(PasswordLimits, PasswordsAreReplacedWhileTheyAreCompared) {
  PasswordGate gate{std::string(old_password)};
  std::atomic<bool> stop{false};
  std::atomic<unsigned> compared{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        EXPECT_TRUE(gate.matches(old_password));
        EXPECT_FALSE(gate.matches("x"));
        ++compared;
      }
    });
  }
  for (int i = 0; i < 300 || compared < 100; ++i) gate.set_passwords({std::to_string(i), old_password});
  stop = true;
}

TEST(PasswordFiles, ReportChanges) {
  const TemporaryFolder folder;
  const std::string first = folder.path() / "first";
  const std::string second = folder.path() / "second";
  std::ofstream(first) << "one\n";
  std::ofstream(second) << "two\n";
  PasswordFiles files({first, second});
  EXPECT_TRUE(files.changed());
  ASSERT_TRUE(files.read());
  EXPECT_FALSE(files.changed());
  std::ofstream(second) << "three\n";
  EXPECT_TRUE(files.changed());
  const auto again = files.read();
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, (std::vector<std::string>{"one", "three"}));
  EXPECT_FALSE(files.changed());
  // Another file of equal length at the same name.
  std::ofstream(folder.path() / "other") << "3eert\n";
  std::filesystem::rename(folder.path() / "other", second);
  EXPECT_TRUE(files.changed());
  ASSERT_TRUE(files.read());
  std::filesystem::remove(first);
  EXPECT_TRUE(files.changed());
  EXPECT_FALSE(files.read());
  EXPECT_FALSE(files.changed());  // The error is reported once.
  std::ofstream(first) << "one\n";
  EXPECT_TRUE(files.changed());
}

// Whoever writes a file, writes it in parts.
TEST(PasswordFiles, AreReadWhenTheyStayTheSame) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "password";
  std::ofstream(file) << "one\n";
  PasswordFiles files({file});
  ASSERT_TRUE(files.read());
  EXPECT_TRUE(files.settled());
  std::ofstream writer(file);
  writer << "the password" << std::flush;
  EXPECT_TRUE(files.changed());
  EXPECT_FALSE(files.settled());
  writer << " of tomorrow\n" << std::flush;
  EXPECT_FALSE(files.settled());
  EXPECT_TRUE(files.settled());
  EXPECT_TRUE(files.changed());
  const auto now = files.read();
  ASSERT_TRUE(now);
  EXPECT_EQ(*now, std::vector<std::string>{new_password});
  EXPECT_FALSE(files.changed());
}

TEST(PasswordFiles, OfARunningServerAreReadAgain) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "password";
  const std::string second_file = folder.path() / "second";
  std::ofstream(file) << old_password << "\n";
  std::ofstream(second_file) << "the second password\n";
  ServeProcess process({"--password-file", file, "--password-file", second_file});
  const std::string address = "127.0.0.1:" + process.port();
  ASSERT_EQ(redis_outcome(address, old_password), "+OK\r\n") << process.text;
  ASSERT_EQ(redis_outcome(address, "the second password"), "+OK\r\n") << process.text;
  // A file that cannot be used changes nothing.
  std::ofstream(file) << "";
  EXPECT_TRUE(process.says("the old passwords stay: ")) << process.text;
  EXPECT_EQ(redis_outcome(address, old_password), "+OK\r\n");
  EXPECT_EQ(redis_outcome(address, "the second password"), "+OK\r\n");
  // The new password, and the one before, so that clients can change.
  std::ofstream(second_file) << old_password << "\n";
  std::ofstream(file) << new_password << "\n";
  EXPECT_TRUE(process.says("the password files were read again")) << process.text;
  EXPECT_EQ(redis_outcome(address, new_password), "+OK\r\n");
  EXPECT_EQ(redis_outcome(address, old_password), "+OK\r\n");
  EXPECT_TRUE(redis_outcome(address, "the second password").starts_with("-WRONGPASS"));
  EXPECT_EQ(native_outcome(address, new_password), "ok");
}

}  // namespace
}  // namespace hawser::kv
