// The store within TLS: programs for Redis, hawser-kv itself, and reads without calls.
#include "hawser/tls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"
#include "security/tls/authority.h"
#include "tests/output_of.h"
#include "tests/python_process.h"

namespace hawser::kv {
namespace {

using testing_tools::output_of;

// A running hawser-kv that demands certificates and a password, and the files of its clients.
class KvTls : public ::testing::Test {
 protected:
  KvTls() : authority(folder.path().string(), "main"), server(authority.issue("server")), client(issue_client()) {
    std::ofstream(password_file) << password << "\n";
    std::ofstream(wrong_file) << "wrong\n";
    std::filesystem::permissions(password_file, std::filesystem::perms::owner_read);
  }
  TlsCertificate issue_client() {
    security::tls::Request request;
    request.subject = "worker";
    return authority.issue("client", request);
  }
  void start(std::vector<std::string> more = {}) {
    for (const std::string& word :
         {std::string("--tls-cert"), server.certificate_file, std::string("--tls-key"), server.key_file,
          std::string("--tls-client-ca"), authority.ca_file(), std::string("--password-file"), password_file}) {
      more.push_back(word);
    }
    process = std::make_unique<ServeProcess>(more);
    ASSERT_FALSE(process->address.empty()) << process->text;
  }
  void TearDown() override {
    if (process == nullptr) return;
    process->end();
    EXPECT_EQ(process->text.find(password), std::string::npos) << process->text;
  }
  std::string certificate_options() const {
    return " --tls-ca " + authority.ca_file() + " --tls-cert " + client.certificate_file + " --tls-key " +
           client.key_file;
  }
  std::string kv(const std::string& command, const std::string& options) const {
    return output_of(ServeProcess::program() + " " + command + " --connect localhost:" + process->port() + options);
  }

  // On a busy machine the program warns that its loop was blocked.
  const std::string result_only = " 2>/dev/null";
  const TemporaryFolder folder;
  security::tls::Authority authority;
  const TlsCertificate server;
  const TlsCertificate client;
  const std::string password = "the password of this test";
  const std::string password_file = (folder.path() / "password").string();
  const std::string wrong_file = (folder.path() / "wrong").string();
  std::unique_ptr<ServeProcess> process;
};

TEST_F(KvTls, ProgramsForRedisWorkWithAPassword) {
  start();
  testing_tools::PythonProcess script(std::filesystem::path(__FILE__).parent_path() / "redis_secure_client.py",
                                      process->port() + " " + password_file + " " + authority.ca_file() + " " +
                                          client.certificate_file + " " + client.key_file);
  const int status = script.wait();
  if (status == testing_tools::PythonProcess::skipped) GTEST_SKIP() << script.output;
  EXPECT_EQ(status, 0) << script.output;
}

TEST_F(KvTls, RedisCliWorksWithAPassword) {
  if (access("/usr/bin/redis-cli", X_OK) != 0) GTEST_SKIP() << "redis-cli is not installed";
  start();
  const std::string tool = "/usr/bin/redis-cli -h localhost -p " + process->port() + " ";
  const std::string files = "--tls --cacert " + authority.ca_file() + " ";
  const std::string own = files + "--cert " + client.certificate_file + " --key " + client.key_file + " ";
  const std::string known = "REDISCLI_AUTH='" + password + "' " + tool + own;
  EXPECT_EQ(output_of(known + "set a 1"), "OK\n");
  EXPECT_EQ(output_of(known + "-3 incrby a 41"), "42\n");
  EXPECT_NE(output_of(tool + own + "get a").find("NOAUTH"), std::string::npos);
  EXPECT_NE(output_of("REDISCLI_AUTH=wrong " + tool + own + "get a").find("WRONGPASS"), std::string::npos);
  for (const std::string& refused : {tool + files, tool}) {
    const std::string text = output_of("REDISCLI_AUTH='" + password + "' timeout 60 " + refused + "get a");
    EXPECT_EQ(text.find("42"), std::string::npos) << text;
  }
}

TEST_F(KvTls, CommandsTakeTheSameOptions) {
  start();
  const std::string known = certificate_options() + " --password-file " + password_file;
  EXPECT_EQ(kv("set greeting morning", known + result_only), "");
  EXPECT_EQ(kv("get greeting", known + result_only), "morning\n");
  const std::string bench = "bench --ycsb a --keys 100 --seconds 0.1 --in-flight 4 --transport ";
  EXPECT_NE(kv(bench + "shm", known).find("\"failed\": 0"), std::string::npos);
  EXPECT_NE(kv(bench + "tcp", known).find("\"failed\": 0"), std::string::npos);
  // Without each of them.
  EXPECT_NE(kv("get greeting", certificate_options()).find("needs a password"), std::string::npos);
  EXPECT_NE(kv("get greeting", certificate_options() + " --password-file " + wrong_file).find("is wrong"),
            std::string::npos);
  const std::string no_certificate = " --tls-ca " + authority.ca_file() + " --password-file " + password_file;
  const std::string plain = " --password-file " + password_file;
  for (const std::string& options : {no_certificate, plain}) {
    const std::string text = kv("get greeting", options);
    EXPECT_TRUE(text.find("hawser-kv: ") != std::string::npos && text.find("morning") == std::string::npos) << text;
  }
  EXPECT_NE(kv("get greeting", " --tls-cert " + client.certificate_file).find("--tls-key"), std::string::npos);
  EXPECT_NE(kv("bench --protocol redis --keys 10", known).find("--protocol hawser"), std::string::npos);
}

TEST_F(KvTls, PlainTextWithAPasswordIsPossible) {
  start({"--tls", "allowed"});
  RespPeer peer(process->address);
  EXPECT_TRUE(peer.call({"GET", "a"}).starts_with("-NOAUTH"));
  EXPECT_EQ(peer.call({"AUTH", password}), "+OK\r\n");
  EXPECT_EQ(peer.call({"SET", "a", "1"}), "+OK\r\n");
  EXPECT_EQ(kv("get a", " --password-file " + password_file + result_only), "1\n");
  EXPECT_NE(kv("bench --protocol redis --ycsb c --keys 100 --seconds 0.1 --connections 2",
               " --password-file " + password_file)
                .find("\"failed\": 0"),
            std::string::npos);
  EXPECT_NE(kv("bench --protocol redis --keys 100", " --password-file " + wrong_file).find("WRONGPASS"),
            std::string::npos);
}

TEST_F(KvTls, WrongOptionsAreErrors) {
  const auto serve = [&](const std::string& options) {
    return output_of("timeout 60 " + ServeProcess::program() + " serve --listen 127.0.0.1:0 --memory 4M " + options);
  };
  EXPECT_NE(serve("--password-file " + folder.path().string() + "/nosuch").find("cannot be read"), std::string::npos);
  EXPECT_NE(serve("--tls-cert " + server.certificate_file).find("--tls-key"), std::string::npos);
  EXPECT_NE(serve("--tls required").find("--tls-cert"), std::string::npos);
  EXPECT_NE(serve("--tls-client-ca " + authority.ca_file()).find("--tls-cert"), std::string::npos);
  // The key of another certificate.
  const std::string text = serve("--tls-cert " + server.certificate_file + " --tls-key " + client.key_file);
  EXPECT_TRUE(text.starts_with("hawser-kv: ") && text.find(server.certificate_file) != std::string::npos) << text;
  std::filesystem::permissions(wrong_file, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  const ServeProcess warned({"--password-file", wrong_file});
  EXPECT_FALSE(warned.address.empty());
  EXPECT_NE(warned.text.find("5 bytes"), std::string::npos) << warned.text;
  EXPECT_NE(warned.text.find("chmod 600"), std::string::npos) << warned.text;
  EXPECT_EQ(warned.text.find("wrong password"), std::string::npos);
}

// Reads a key until a read came without a call, or some were calls.
Task<std::pair<std::uint64_t, std::string>> read_over(std::string address, ClientOptions options,
                                                      std::string_view transport) {
  Client link(options);
  const Result<void> connected = co_await link.connect(address);
  EXPECT_TRUE(connected) << (connected ? "" : connected.error().text);
  std::pair<std::uint64_t, std::string> result;
  if (!connected) co_return result;
  EXPECT_EQ(link.transport(), transport);
  KvClient client(link);
  const auto set = co_await client.set("key", "value");
  EXPECT_TRUE(set);
  constexpr int reads_max = 300;
  for (int i = 0; i < reads_max; ++i) {
    const Result<std::optional<Value>> value = co_await client.get("key");
    EXPECT_TRUE(value && *value && (*value)->bytes == "value");
    co_await Loop::current()->sleep(std::chrono::milliseconds(client.direct_reads() == 0 ? 1 : 0));
  }
  result = {client.direct_reads(), std::string(client.calls_reason())};
  co_return result;
}

TEST_F(KvTls, ReadsWithoutCallsDependOnTheProtection) {
  struct Level {
    TlsProtection server;
    TlsProtection client;
    const char* transport;
    const char* reason;  // Null: there are reads without calls.
  };
  using enum TlsProtection;
  for (const Level& level :
       {Level{authenticated, authenticated, "shm", nullptr}, Level{signed_messages, authenticated, "shm", "are signed"},
        Level{authenticated, signed_messages, "shm", "are signed"},
        Level{sealed_messages, authenticated, "shm", "are sealed"},
        Level{authenticated, sealed_messages, "shm", "are sealed"},
        Level{encrypted_stream, authenticated, "tcp+tls", ""}}) {
    SCOPED_TRACE(std::string(level.transport) + " " + (level.reason == nullptr ? "" : level.reason));
    ServerOptions options;
    options.security = TlsServer({.certificates = {server}, .protection = level.server});
    KvServer store({}, options, nullptr, std::make_shared<PasswordGate>(password));
    TlsClientOptions trusted;
    trusted.ca_file = authority.ca_file();
    trusted.protection = level.client;
    ClientOptions client_options;
    client_options.security = TlsClient(trusted);
    client_options.interceptors.push_back(send_password(password));
    const auto [direct, reason] = sync_wait(read_over(store.address(), client_options, level.transport));
    if (level.reason == nullptr) {
      EXPECT_GT(direct, 0U);
      EXPECT_EQ(reason, "");
    } else {
      EXPECT_EQ(direct, 0U);
      EXPECT_NE(reason.find(level.reason), std::string::npos) << reason;
    }
  }
}

// Who has a certificate but not the password is refused, also where TLS is optional.
TEST_F(KvTls, ACertificateIsNoPassword) {
  for (const TlsPolicy policy : {TlsPolicy::required, TlsPolicy::allowed}) {
    ServerOptions options;
    options.security = TlsServer({.certificates = {server}, .client_ca_file = authority.ca_file(), .policy = policy});
    KvServer store({}, options, nullptr, std::make_shared<PasswordGate>(password));
    TlsClientOptions trusted;
    trusted.ca_file = authority.ca_file();
    trusted.certificate = client;
    ClientOptions client_options;
    client_options.security = TlsClient(trusted);
    sync_wait([](std::string address, ClientOptions with) -> Task<void> {
      Client link(with);
      const Result<void> connected = co_await link.connect(address);
      EXPECT_TRUE(connected) << (connected ? "" : connected.error().text);
      KvClient kv_client(link);
      const auto value = co_await kv_client.get("key");
      EXPECT_TRUE(!value && value.error().code == ErrorCode::unauthenticated);
      EXPECT_NE(kv_client.calls_reason().find("password"), std::string_view::npos) << kv_client.calls_reason();
    }(store.address(), client_options));
  }
}

}  // namespace
}  // namespace hawser::kv
