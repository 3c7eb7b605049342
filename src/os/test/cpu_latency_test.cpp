#include "os/cpu_latency.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "base/temporary_folder.h"

namespace hawser {
namespace {

using std::chrono::microseconds;

TEST(CpuLatency, WritesItsValueAndHoldsTheFileOpen) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "latency";
  std::ofstream(path).flush();
  const Result<CpuLatency> held = CpuLatency::hold(microseconds(42), path);
  ASSERT_TRUE(held.has_value()) << held.error().describe();
  std::int32_t value = 0;
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&value), sizeof value);
  EXPECT_EQ(value, 42);
}

TEST(CpuLatency, TellsWhatIsMissing) {
  const Result<CpuLatency> held = CpuLatency::hold(microseconds(0), testing::TempDir() + "no/such/device");
  ASSERT_FALSE(held.has_value());
  EXPECT_EQ(held.error().code, ErrorCode::unavailable);
  EXPECT_NE(held.error().text.find("No such file"), std::string::npos) << held.error().text;
  EXPECT_NE(held.error().text.find("cpu_latency_max"), std::string::npos) << held.error().text;
}

TEST(CpuLatency, ValuesAreBounded) {
  EXPECT_EQ(CpuLatency::hold(microseconds(-1)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(CpuLatency::hold(std::chrono::hours(1)).error().code, ErrorCode::invalid_argument);
}

TEST(CpuLatency, TheDeviceTakesIt) {
  const Result<CpuLatency> held = CpuLatency::hold(microseconds(100));
  if (!held) GTEST_SKIP() << held.error().text;
  // The device returns the least latency that any process requests.
  std::ifstream device(CpuLatency::device, std::ios::binary);
  std::int32_t value = INT32_MAX;
  device.read(reinterpret_cast<char*>(&value), sizeof value);
  if (device.gcount() != sizeof value) GTEST_SKIP() << "the device can't be read here";
  EXPECT_LE(value, 100);
}

}  // namespace
}  // namespace hawser
