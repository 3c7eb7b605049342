#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <thread>

#include "cli/command.h"
#include "hawser/hawser.h"

namespace who {

static std::string calls(hawser::Context& context) {
  return std::string(context.metadata().find("authorization").value_or("?"));
}

}  // namespace who

namespace hawser::cli {
namespace {

// Runs `hawser call` with these arguments against a server with the handler who::calls.
int run_call_command(std::string arguments, std::string& output) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  Server server(options);
  server.register_handler<who::calls>();
  EXPECT_TRUE(server.start());
  CLI::App app;
  const Run run = add_call(app);
  arguments = server.address() + " who::calls " + arguments;
  testing::internal::CaptureStdout();
  int status = wrong_options_status;
  try {
    app.parse(arguments);
    status = run();
  } catch (const CLI::ValidationError& error) {
    output = error.what();
  }
  const std::string printed = testing::internal::GetCapturedStdout();
  if (output.empty()) output = printed;
  server.stop();
  return status;
}

TEST(CallCommand, SendsMetadata) {
  std::string output;
  EXPECT_EQ(run_call_command("--metadata authorization=Bearer=x --metadata other=1", output), 0);
  EXPECT_NE(output.find("\"Bearer=x\""), std::string::npos) << output;
}

TEST(CallCommand, RefusesMetadataWithoutAName) {
  for (const char* const wrong : {"--metadata =x", "--metadata token"}) {
    std::string output;
    EXPECT_EQ(run_call_command(wrong, output), 2);
    EXPECT_NE(output.find("is not NAME=VALUE"), std::string::npos) << output;
  }
}

}  // namespace
}  // namespace hawser::cli
