#include "transport/rdma/protocol/transfers.h"

#include <gtest/gtest.h>

namespace hawser::transport::rdma {
namespace {

struct Owner final : SendCompletion {
  void on_send_complete() noexcept override { ++released; }
  int released = 0;
};

// The peer reports a transfer as done twice, and its slot belongs to another transfer by then.
TEST(RdmaTransfers, DoneTwiceAfterReuseEndsNothing) {
  Transfers transfers(4);
  Owner first;
  Owner second;
  const std::uint32_t old = transfers.begin({}, &first, 10);
  ASSERT_TRUE(transfers.end(old));
  const std::uint32_t reused = transfers.begin({}, &second, 20);
  EXPECT_NE(old, reused);
  EXPECT_FALSE(transfers.end(old)) << "a stale id ends the transfer that has its slot now";
  EXPECT_EQ(second.released, 0);
  EXPECT_EQ(transfers.open(), 1U);
  EXPECT_EQ(transfers.copied_bytes(), 20U);
  EXPECT_TRUE(transfers.end(reused));
  EXPECT_FALSE(transfers.end(reused));
  EXPECT_EQ(first.released, 1);
  EXPECT_EQ(second.released, 1);
  EXPECT_EQ(transfers.open(), 0U);
  EXPECT_EQ(transfers.copied_bytes(), 0U);
}

TEST(RdmaTransfers, IdsThatNeverWereEndNothing) {
  Transfers transfers(4);
  Owner owner;
  const std::uint32_t open = transfers.begin({}, &owner, 0);
  for (const std::uint32_t forged : {open + 1, open ^ (1U << 31), open ^ (1U << 10), 0xffffffffU}) {
    EXPECT_FALSE(transfers.end(forged)) << forged;
  }
  EXPECT_EQ(owner.released, 0);
  EXPECT_TRUE(transfers.end(open));
}

}  // namespace
}  // namespace hawser::transport::rdma
