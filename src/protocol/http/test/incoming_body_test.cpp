#include "protocol/http/incoming_body.h"

#include <gtest/gtest.h>

#include <string>

namespace hawser::protocol::http {
namespace {

constexpr std::size_t rest_bytes = 2 * rpc::ByteSession::receive_block_bytes;

TEST(IncomingBody, AllMemoryThatItHoldsIsCharged) {
  detail::ReceiveBudget budget(64 << 20, 64 << 20);
  detail::ReceiveAccount account(&budget);
  IncomingBody body;
  body.begin(Time{}, false);
  const std::string part(1000, 'x');
  for (std::size_t parts = 1; parts <= 3000; ++parts) {
    ASSERT_TRUE(body.add(as_bytes(part), account));
    ASSERT_EQ(body.bytes.size(), parts * part.size());
    ASSERT_GE(account.used(), body.bytes.capacity()) << parts << " parts";
    ASSERT_LE(body.bytes.capacity(), 2 * body.bytes.size()) << parts << " parts";
  }
  const Result<std::string> all = body.take(Time{});
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->size(), 3'000'000U);
  EXPECT_EQ(account.used(), 0U);
  EXPECT_EQ(body.bytes.capacity(), std::string().capacity());
}

// The last of the memory goes to what has arrived, not to room for more.
TEST(IncomingBody, GrowsByWhatIsLeft) {
  const std::size_t bytes_max = rest_bytes + 120'000;
  detail::ReceiveBudget budget(bytes_max, bytes_max);
  detail::ReceiveAccount account(&budget);
  IncomingBody body;
  body.begin(Time{}, false);
  const std::string part(10'000, 'x');
  std::size_t parts = 0;
  while (parts < 100 && body.add(as_bytes(part), account)) {
    ++parts;
    ASSERT_GE(account.used(), body.bytes.capacity());
    ASSERT_LE(account.used(), bytes_max - rest_bytes);
  }
  EXPECT_EQ(parts, 12U);
  EXPECT_EQ(body.bytes, std::string(parts * part.size(), 'x'));
  body.clear();
  EXPECT_EQ(account.used(), 0U);
  EXPECT_EQ(body.bytes.capacity(), std::string().capacity());
}

TEST(IncomingBody, ASmallBodyTakesTheLastMemory) {
  detail::ReceiveBudget budget(8192, 8192);
  detail::ReceiveAccount account(&budget);
  ASSERT_TRUE(account.acquire(8192 - small_body_bytes));
  IncomingBody body;
  body.begin(Time{}, false);
  const std::string part(1024, 'x');
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(body.add(as_bytes(part), account)) << i;
  EXPECT_FALSE(body.add(as_bytes(part), account));
  EXPECT_EQ(body.bytes.size(), 4096U);
  account.release(8192 - small_body_bytes);
}

}  // namespace
}  // namespace hawser::protocol::http
