// The redis package of Python, without changes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "kv/test/resp_peer.h"
#include "tests/python_process.h"

namespace hawser::kv {
namespace {

void run_script(unsigned shards, const LogOptions* log = nullptr) {
  KvServer server({.shards = shards}, {}, log);
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  testing_tools::PythonProcess client(std::filesystem::path(__FILE__).parent_path() / "redis_client.py", port);
  const int status = client.wait();
  if (status == testing_tools::PythonProcess::skipped) GTEST_SKIP() << client.output;
  EXPECT_EQ(status, 0) << client.output;
}

TEST(RedisPackage, WorksWithOneShard) { run_script(1); }
TEST(RedisPackage, WorksWithThreeShards) { run_script(3); }

// Replies that wait for the disk, in the order of the commands.
TEST(RedisPackage, WorksWithALog) {
  const TemporaryFolder folder;
  for (const unsigned shards : {1U, 3U}) {
    const LogOptions log{.folder = folder.path(),
                         .shards = {.sync = LogSync::always, .rewriting = {.bytes_min = 64 * 1024}}};
    run_script(shards, &log);
    if (IsSkipped()) return;
  }
}

}  // namespace
}  // namespace hawser::kv
