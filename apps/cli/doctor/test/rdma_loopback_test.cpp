#include "cli/doctor/rdma_loopback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/doctor/test/fake_verbs_testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;
using transport::rdma::WorkStatus;

class SelfTest : public testing::Test {
 protected:
  Result<SelfTestResult> run() {
    return run_self_test(device, options,
                         {.address = device.addresses.front(),
                          .duration = std::chrono::milliseconds(5),
                          .completion_timeout = std::chrono::milliseconds(20)});
  }
  FakeDevice device{"fake0"};
  RdmaOptions options;
};

TEST_F(SelfTest, Measures) {
  const Result<SelfTestResult> result = run();
  ASSERT_TRUE(result) << result.error().text;
  EXPECT_EQ(result->inline_bytes, 256u);
  EXPECT_EQ(result->send_requests, options.send_queue_depth);
  EXPECT_EQ(result->send_bytes, options.chunk_bytes);
  EXPECT_GT(result->one_way_us, 0);
  EXPECT_GT(result->send_megabytes_per_second, 0);
}

TEST_F(SelfTest, LostPackets) {
  device.loses = true;
  const Result<SelfTestResult> result = run();
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().text, HasSubstr("arrives"));
}

TEST_F(SelfTest, FailedCompletion) {
  device.completes_with = WorkStatus::retry_exceeded;
  const Result<SelfTestResult> result = run();
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().text, HasSubstr("retries exceeded"));
}

TEST_F(SelfTest, WrongBytes) {
  device.damages = true;
  const Result<SelfTestResult> result = run();
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().text, HasSubstr("other bytes"));
}

TEST_F(SelfTest, NoMemory) {
  device.registering_fails = "the limit on locked memory";
  const Result<SelfTestResult> result = run();
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().text, HasSubstr("locked memory"));
}

}  // namespace
}  // namespace hawser::cli::doctor
