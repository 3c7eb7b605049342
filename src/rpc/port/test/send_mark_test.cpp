#include "rpc/port/send_mark.h"

#include <gtest/gtest.h>

namespace hawser::rpc {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

TEST(SendMark, IsTheLeastOfOptionAndLimit) {
  detail::ReceiveAccount account(nullptr);
  SendMark mark(account, nullptr);
  mark.renew(mib, 0);
  EXPECT_EQ(mark.bytes(), mib);
  EXPECT_TRUE(mark.set_limit(100 * kib));
  EXPECT_FALSE(mark.set_limit(100 * kib)) << "the same limit";
  EXPECT_EQ(mark.bytes(), mib) << "until renew()";
  mark.renew(mib, 0);
  EXPECT_EQ(mark.bytes(), 100 * kib);
  mark.renew(10 * kib, 0);
  EXPECT_EQ(mark.bytes(), 10 * kib);
}

TEST(SendMark, IsPassedUntilHalfOfItIsFree) {
  detail::ReceiveAccount account(nullptr);
  SendMark mark(account, nullptr);
  mark.renew(mib, 0);
  mark.on_commit(mib);
  EXPECT_FALSE(mark.passed()) << "the mark itself may wait";
  mark.on_commit(mib + 1);
  EXPECT_TRUE(mark.passed());
  EXPECT_FALSE(mark.on_sent(mib / 2 + 1));
  EXPECT_TRUE(mark.on_sent(mib / 2));
  EXPECT_FALSE(mark.passed());
  mark.renew(mib / 4, mib / 2);
  EXPECT_TRUE(mark.passed()) << "the backlog is above a mark that has been lowered";
}

// The budget pays for two steps. What waits is charged in steps, and the mark falls while it can't pay for another one.
TEST(SendMark, FallsWhileTheAccountCannotPay) {
  detail::ReceiveBudget budget(2 * SendCharge::step_bytes, 2 * SendCharge::step_bytes);
  detail::ReceiveAccount account(&budget);
  SendMark mark(account, nullptr);
  mark.renew(mib, 0);
  mark.charge(1);
  EXPECT_EQ(account.used(), SendCharge::step_bytes);
  EXPECT_TRUE(mark.memory_left());
  mark.charge(SendCharge::step_bytes + 1);
  EXPECT_EQ(account.used(), 2 * SendCharge::step_bytes);
  EXPECT_FALSE(mark.memory_left());
  EXPECT_EQ(mark.bytes(), SendCharge::scarce_bytes_max);
  EXPECT_TRUE(mark.passed()) << "the backlog is above the lower mark";
  mark.charge(0);
  EXPECT_TRUE(mark.memory_left());
  EXPECT_EQ(mark.bytes(), mib);
  EXPECT_TRUE(mark.passed()) << "whoever waits is told by on_sent()";
  EXPECT_TRUE(mark.on_sent(0));
}

TEST(SendMark, RisesWhenOthersHaveReleasedMemory) {
  detail::ReceiveBudget budget(3 * SendCharge::step_bytes, 3 * SendCharge::step_bytes);
  detail::ReceiveAccount other(&budget);
  detail::ReceiveAccount account(&budget);
  SendMark mark(account, nullptr);
  mark.renew(mib, 0);
  ASSERT_TRUE(other.acquire(SendCharge::step_bytes));
  mark.charge(SendCharge::step_bytes + 1);
  EXPECT_FALSE(mark.memory_left());
  other.release(SendCharge::step_bytes);
  mark.charge(SendCharge::step_bytes + 1);
  EXPECT_TRUE(mark.memory_left()) << "the same charge, and the account can pay for more";
  EXPECT_EQ(mark.bytes(), mib);
}

TEST(SendMark, WhatWaitsBesideTheBacklogIsChargedAndNotCompared) {
  detail::ReceiveBudget budget(8 * mib, 8 * mib);
  detail::ReceiveAccount account(&budget);
  SendMark mark(account, nullptr);
  mark.renew(mib, 0);
  mark.set_waiting(2 * mib, 0);
  EXPECT_EQ(account.used(), 2 * mib);
  EXPECT_EQ(mark.waiting(), 2 * mib);
  mark.on_commit(1);
  EXPECT_FALSE(mark.passed());
  mark.clear();
  EXPECT_EQ(mark.waiting(), 0U);
  EXPECT_EQ(account.used(), 0U);
}

}  // namespace
}  // namespace hawser::rpc
