#include "hawser/detail/receive_account.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "rpc/session/work_charge.h"

namespace hawser::rpc {
namespace {

constexpr std::size_t kibibyte = 1024;

// Holds 100 bytes, and knows only at update() that they are not needed any more.
struct Lagging final : detail::LaggingCharge {
  explicit Lagging(detail::ReceiveAccount& owner) : account(owner) { account.acquire_always(100); }
  void update() noexcept override {
    ++updates;
    if (charged) account.release(100);
    charged = false;
  }
  detail::ReceiveAccount& account;
  bool charged = true;
  int updates = 0;
};

TEST(LaggingCharges, AreUpdatedBeforeARefusalAndAtMost64AtOnce) {
  detail::ReceiveBudget budget(10'000, 10'000);
  detail::ReceiveAccount account(&budget);
  std::deque<Lagging> all;
  for (int i = 0; i < 100; ++i) budget.add_lagging(all.emplace_back(account));
  EXPECT_EQ(budget.used(), 10'000U);
  EXPECT_TRUE(account.acquire(6400)) << "64 of them are updated";
  EXPECT_FALSE(account.acquire(3601)) << "the other 36 are updated, and that is not enough";
  EXPECT_EQ(budget.used(), 6400U);
  for (const Lagging& one : all) EXPECT_GE(one.updates, 1);
  EXPECT_TRUE(account.acquire(3600));
}

TEST(LaggingCharges, EnterAndLeaveInAnyOrder) {
  detail::ReceiveBudget budget(1, 1);
  detail::ReceiveAccount account(&budget);
  std::deque<Lagging> all;
  for (int i = 0; i < 5; ++i) all.emplace_back(account);
  std::vector<bool> in(all.size());
  std::uint64_t random = 1;
  for (int step = 0; step < 2000; ++step) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    const std::size_t one = (random >> 33) % all.size();
    const bool adds = (random >> 60) % 2 == 0;
    in[one] = adds;
    adds ? budget.add_lagging(all[one]) : budget.remove_lagging(all[one]);
    for (Lagging& charge : all) charge.updates = 0;
    EXPECT_FALSE(account.acquire(8192));
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].updates, in[i] ? 1 : 0) << "step " << step;
  }
}

TEST(WorkCharges, AreAbandonedToTheirWorkOnly) {
  detail::ReceiveBudget budget(8 * kibibyte, 8 * kibibyte);
  detail::ReceiveAccount account(&budget);
  {
    WorkCharge unused;
    ASSERT_TRUE(unused.add(account, 2 * kibibyte, kibibyte));
  }
  EXPECT_EQ(budget.used(), 0U) << "no work has begun";
  WorkCharge charge;
  ASSERT_TRUE(charge.add(account, 2 * kibibyte, kibibyte));
  {
    const WorkCharge::Use use = charge.use();
    use.begin();
    charge.abandon();
    EXPECT_EQ(budget.used(), 3 * kibibyte);
  }
  EXPECT_EQ(budget.used(), 0U);
  // It is dropped before it begins, and begins nevertheless.
  ASSERT_TRUE(charge.add(account, 2 * kibibyte, kibibyte));
  {
    const WorkCharge::Use use = charge.use();
    charge.abandon();
    EXPECT_EQ(budget.used(), 0U);
    use.begin();
    EXPECT_EQ(budget.used(), 3 * kibibyte);
  }
  EXPECT_EQ(budget.used(), 0U);
}

// Connections that are not read hold as much again as the limits of the loop and of their peer, and one message more.
TEST(ReceiveAccount, WhatIsNotReadIsBoundedByTheLimitsOnceMore) {
  detail::ReceiveBudget budget(1000, 1000, 400);
  std::deque<detail::ReceivePeer> peers(3);
  std::deque<detail::ReceiveAccount> accounts;
  for (detail::ReceivePeer& peer : peers) {
    accounts.emplace_back(&budget, &peer);
    accounts.emplace_back(&budget, &peer);
  }
  EXPECT_TRUE(accounts[0].begin_unread(300));
  EXPECT_TRUE(accounts[1].begin_unread(300)) << "one message goes beyond the peer's limit";
  EXPECT_FALSE(accounts[0].begin_unread(1));
  EXPECT_TRUE(accounts[2].begin_unread(350));
  EXPECT_TRUE(accounts[4].begin_unread(300)) << "one message goes beyond the loop's limit";
  EXPECT_FALSE(accounts[3].begin_unread(1)) << "its peer has 50 bytes left";
  accounts[1].end_unread(300);
  EXPECT_TRUE(accounts[3].begin_unread(1));
  EXPECT_TRUE(accounts[0].begin_unread(1));
}

}  // namespace
}  // namespace hawser::rpc
