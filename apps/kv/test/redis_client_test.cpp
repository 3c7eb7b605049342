// The redis package of Python, without changes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "kv/test/resp_peer.h"
#include "tests/python_process.h"

namespace hawser::kv {
namespace {

void run_script(unsigned shards) {
  KvServer server({.shards = shards});
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  testing_tools::PythonProcess client(std::filesystem::path(__FILE__).parent_path() / "redis_client.py", port);
  const int status = client.wait();
  if (status == testing_tools::PythonProcess::skipped) GTEST_SKIP() << client.output;
  EXPECT_EQ(status, 0) << client.output;
}

TEST(RedisPackage, WorksWithOneShard) { run_script(1); }
TEST(RedisPackage, WorksWithThreeShards) { run_script(3); }

}  // namespace
}  // namespace hawser::kv
