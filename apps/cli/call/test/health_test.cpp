#include "hawser/health.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>

#include "cli/command.h"
#include "hawser/hawser.h"
#include "hawser/http.h"

namespace hawser::cli {
namespace {

// The output of `hawser health` with these arguments, behind its exit status.
std::string health_command(const std::string& arguments) {
  CLI::App app;
  const Run run = add_health(app);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  app.parse(arguments);
  const int status = run();
  static_cast<void>(testing::internal::GetCapturedStderr());
  return std::to_string(status) + " " + testing::internal::GetCapturedStdout();
}

// `/health` and `hawser health` say the same, without grpc.health.v1.Health too.
TEST(HealthCommand, AsksTheHealthOfTheServer) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  Server server(options);
  server.enable(http());
  const ServerHealth health(server);
  health.add({.name = "database", .check = [] { return fail(ErrorCode::unavailable, "gone"); }, .service = "a&b"});
  ASSERT_TRUE(server.start());
  for (const std::string way : {"", " --protocol http"}) {
    const std::string address = server.address() + way;
    health.set("", true);
    EXPECT_EQ(health_command(address), "0 serving\n");
    EXPECT_EQ(health_command(address + " --service a&b"), "1 not serving\n");
    EXPECT_EQ(health_command(address + " --service a"), "1 ");
    health.set("", false);
    EXPECT_EQ(health_command(address), "1 not serving\n");
    EXPECT_EQ(health_command(address + " --json"), "1 {\"health\":\"not serving\"}\n");
  }
}

// Such a server has no other sign of its health than its answer.
TEST(HealthCommand, PingsAServerThatDoesNotDescribeItself) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.describe = false;
  Server server(options);
  ASSERT_TRUE(server.start());
  EXPECT_EQ(health_command(server.address()), "0 serving\n");
  EXPECT_EQ(health_command(server.address() + " --service shop"), "5 ");
}

}  // namespace
}  // namespace hawser::cli
