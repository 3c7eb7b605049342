#include "kv/command.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/temporary_folder.h"
#include "kv/commands.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

int run_command(Run (*add)(CLI::App&), const std::string& arguments, std::string* output = nullptr) {
  CLI::App app;
  const Run run = add(app);
  app.parse(arguments);
  testing::internal::CaptureStdout();
  const int status = run();
  const std::string text = testing::internal::GetCapturedStdout();
  if (output != nullptr) *output = text;
  return status;
}

TEST(Commands, SetAndGet) {
  KvServer server;
  const std::string at = "--connect " + server.address() + " ";
  EXPECT_EQ(run_command(add_get, at + "greeting"), 3);
  EXPECT_EQ(run_command(add_set, at + "greeting hello --lifetime 100"), 0);
  std::string output;
  EXPECT_EQ(run_command(add_get, at + "greeting", &output), 0);
  EXPECT_EQ(output, "hello\n");
}

TEST(Commands, ServeRefusesMemoryThatItsThreadsCannotUse) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_command(add_serve, "--listen unix:@unused --memory 100G"), wrong_options_status);
  EXPECT_EQ(run_command(add_serve, "--listen unix:@unused --memory 2M --threads 3"), wrong_options_status);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("--memory: 107374182400 bytes for --threads 1 are 107374182400 bytes"), std::string::npos)
      << text;
  EXPECT_NE(text.find("--memory: 2097152 bytes for --threads 3 are 699050 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("change --memory or --threads"), std::string::npos) << text;
}

TEST(Commands, BenchWritesItsResult) {
  KvServer server({.shards = 2});
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("hawser-kv-bench-" + std::to_string(getpid()) + ".json");
  for (const char* const workload : {"a", "c", "f"}) {
    ASSERT_EQ(run_command(add_bench, "--connect " + server.address() + " --keys 200 --seconds 0.1 --ycsb " + workload +
                                         " --json " + file.string()),
              0);
    const nlohmann::json result = nlohmann::json::parse(std::ifstream(file));
    EXPECT_GT(result.at("ops_per_s").get<double>(), 0);
    EXPECT_GE(result.at("p99_us").get<double>(), result.at("p50_us").get<double>());
    EXPECT_FALSE(result.at("server_cpu_s_per_million").is_null());
    EXPECT_EQ(result.at("failed").get<std::uint64_t>(), 0U);
  }
  std::filesystem::remove(file);
}

// Several clients with requests in pipelines, also while the server sleeps between them.
TEST(Commands, ServesWithEachWayToWait) {
  for (const char* const wait : {"spin", "event"}) {
    for (const char* const poller : {"automatic", "epoll", "io_uring"}) {
      SCOPED_TRACE(std::string(wait) + " " + poller);
      const TemporaryFolder folder;
      KvProcess server(folder.path(), "", 2, {"--wait", wait, "--poller", poller});
      ASSERT_TRUE(server.ready);
      RespPeer one(server.address());
      RespPeer other(server.address());
      for (int i = 0; i < 20; ++i) {
        const std::string number = std::to_string(i);
        one.send(request({"SET", "a" + number, number}) + request({"GET", "a" + number}));
        other.send(request({"INCR", "sum"}) + request({"PING", number}));
        EXPECT_EQ(one.receive(), "+OK\r\n");
        EXPECT_EQ(other.receive(), ":" + std::to_string(i + 1) + "\r\n");
        EXPECT_EQ(one.receive(), "$" + std::to_string(number.size()) + "\r\n" + number + "\r\n");
        EXPECT_EQ(other.receive(), "$" + std::to_string(number.size()) + "\r\n" + number + "\r\n");
        if (i % 5 == 0) usleep(5'000);
      }
    }
  }
}

TEST(Commands, NamesAreFoundInAnyCase) {
  for (const Command& command : all_commands()) {
    std::string name(command.name);
    EXPECT_EQ(find_command(name), &command);
    for (char& c : name) {
      c = static_cast<char>(c - 'a' + 'A');
      EXPECT_EQ(find_command(name), &command) << name;
      // Bytes around the capital and small letters, with bit 7 and with bit 5 changed.
      for (const char other : {'@', '[', '`', '{', static_cast<char>(c | 0x80), static_cast<char>(c ^ 0x40), '\0'}) {
        const char kept = std::exchange(c, other);
        EXPECT_EQ(find_command(name), nullptr) << name;
        c = kept;
      }
    }
    EXPECT_EQ(find_command(name + '\0'), nullptr);
    EXPECT_EQ(find_command(name + "x"), nullptr);
  }
  EXPECT_EQ(find_command(""), nullptr);
  EXPECT_EQ(find_command(std::string(100, 'a')), nullptr);
}

TEST(Commands, BenchSpeaksTheProtocolOfRedis) {
  KvServer server({.shards = 2});
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "result.json";
  for (const char* const workload : {"a", "b", "c", "f", "load"}) {
    ASSERT_EQ(
        run_command(add_bench, "--protocol redis --connect " + server.address() +
                                   " --keys 200 --seconds 0.1 --connections 3 --in-flight 7 --value 100000 --ycsb " +
                                   workload + " --json " + file.string()),
        0);
    const nlohmann::json result = nlohmann::json::parse(std::ifstream(file));
    EXPECT_GT(result.at("operations").get<std::uint64_t>(), 0U);
    EXPECT_EQ(result.at("failed").get<std::uint64_t>(), 0U);
    EXPECT_EQ(result.at("protocol"), "redis");
  }
}

TEST(Commands, BenchReportsWhatAServerRefuses) {
  KvServer server;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_command(add_bench, "--protocol memcached --connect " + server.address() + " --keys 200 --seconds 0.1"),
            1);
  EXPECT_EQ(run_command(add_bench, "--protocol redis --connect unix:@hawser-kv-nobody --seconds 0.1"), 1);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("the server answered: -ERR"), std::string::npos) << text;
  EXPECT_NE(text.find("unix:@hawser-kv-nobody: cannot connect: Connection refused"), std::string::npos) << text;
}

TEST(Commands, CompareMeasuresTheInstalledServers) {
  for (const char* const program : {"redis-server", "memcached"}) {
    if (std::system((std::string("command -v ") + program + " > /dev/null").c_str()) != 0) {
      GTEST_SKIP() << program << " is not installed";
    }
  }
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "result.json";
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hawser-kv";
  ASSERT_EQ(
      std::system((program.string() + " compare --server-cpu -1 --client-cpu -1 --rounds 1 --seconds 0.1 --keys 200" +
                   " --ycsb a --in-flight 1,8 --connections 4 --json " + file.string() + " > /dev/null")
                      .c_str()),
      0);
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(file));
  std::string servers;
  for (const nlohmann::json& row : rows) {
    servers.append(row.at("server"))
        .append(" ")
        .append(std::to_string(row.at("in_flight").get<unsigned>()))
        .append(", ");
    EXPECT_GT(row.at("ops_per_s").get<double>(), 0);
  }
  EXPECT_EQ(servers, "hawser-kv 1, redis-server 1, memcached 1, hawser-kv 8, redis-server 8, memcached 8, ");
}

}  // namespace
}  // namespace hawser::kv
