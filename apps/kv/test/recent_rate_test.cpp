#include "kv/recent_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(RecentRate, IsThatOfTheLastSamples) {
  RecentRate rate;
  Time now = Time{} + 1h;
  rate.sample(now, 1000);
  EXPECT_EQ(rate.per_second(), 0U);
  rate.sample(now + 99ms, 5000);
  EXPECT_EQ(rate.per_second(), 0U) << "too early";
  rate.sample(now += 200ms, 1100);
  EXPECT_EQ(rate.per_second(), 500U);
  for (std::uint64_t i = 1; i <= RecentRate::samples_max; ++i) rate.sample(now += 100ms, 1100 + i * 300);
  EXPECT_EQ(rate.per_second(), 3000U) << "the first ones do not count any more";
  const std::uint64_t last = 1100 + RecentRate::samples_max * 300;
  for (std::uint64_t i = 0; i <= RecentRate::samples_max; ++i) rate.sample(now += 100ms, last);
  EXPECT_EQ(rate.per_second(), 0U);
}

TEST(RecentRate, IsShownByInfo) {
  KvServer server({.shards = 2});
  RespPeer peer(server.address());
  const auto end = std::chrono::steady_clock::now() + 100s;
  std::string info;
  do {
    info = peer.call({"INFO", "stats"});
    ASSERT_THAT(info, HasSubstr("\r\ninstantaneous_ops_per_sec:"));
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  } while (info.contains("\r\ninstantaneous_ops_per_sec:0\r\n"));
}

}  // namespace
}  // namespace hawser::kv
