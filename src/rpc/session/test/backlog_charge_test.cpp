#include "rpc/session/backlog_charge.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/log.h"
#include "transport/common/test/played_connection.h"

// A connection whose backlog the test sets, in virtual time.
namespace hawser::rpc {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
constexpr std::size_t option_bytes = 64 * MiB;

class BacklogChargeTest : public testing::Test {
 protected:
  void commit_until(std::size_t backlog) {
    connection.waiting = backlog;
    charge.on_commit();
  }
  void sleep(Duration duration) {
    loop.run([](Loop& on, Duration until) -> Task<void> { co_await on.sleep(until); }(loop, duration));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  transport::PlayedConnection connection;
  transport::PlayedSink session;
  detail::ReceiveBudget budget{8 * MiB, 8 * MiB};
  detail::ReceiveAccount account{&budget};
  OwnedCounter total;
  BacklogCharge charge{
      loop, connection, session, {.account = account, .budget = &budget, .total = &total}, option_bytes};
};

TEST_F(BacklogChargeTest, AShortBacklogIsNotCharged) {
  commit_until(SendCharge::step_bytes);
  sleep(milliseconds(50));
  EXPECT_EQ(account.used(), 0U);
  EXPECT_EQ(connection.flushes, 0U);
}

TEST_F(BacklogChargeTest, ABacklogIsChargedAtTheEndOfTheTickAndReleasedWhenItIsSent) {
  commit_until(BacklogCharge::charged_later_max);
  EXPECT_EQ(account.used(), 0U) << "it may be sent at the end of the tick";
  EXPECT_EQ(connection.flushes, 0U);
  sleep(milliseconds(1));
  EXPECT_EQ(account.used(), BacklogCharge::charged_later_max);
  EXPECT_EQ(total.get(), BacklogCharge::charged_later_max);
  connection.waiting = 0;
  EXPECT_EQ(account.used(), BacklogCharge::charged_later_max) << "the connection notifies nobody";
  sleep(milliseconds(50));
  EXPECT_EQ(account.used(), 0U);
  EXPECT_EQ(total.get(), 0U);
  EXPECT_EQ(session.drained, 0U) << "the mark did not change";
}

TEST_F(BacklogChargeTest, ALongBacklogIsChargedAtOnceUnlessItCanBeSent) {
  connection.flush_leaves = 4 * KiB;
  commit_until(3 * MiB);
  EXPECT_EQ(connection.flushes, 1U);
  EXPECT_EQ(account.used(), 0U);
  connection.flush_leaves = 2 * MiB;
  commit_until(3 * MiB);
  EXPECT_EQ(connection.flushes, 2U);
  EXPECT_EQ(account.used(), 2 * MiB);
}

TEST_F(BacklogChargeTest, TheMarkIsLowWhileTheAccountCannotPayAndWhoWaitsContinuesAfterwards) {
  EXPECT_EQ(charge.mark(), option_bytes);
  commit_until(9 * MiB);
  EXPECT_EQ(charge.mark(), SendCharge::scarce_bytes_max);
  EXPECT_EQ(connection.marks, std::vector<std::size_t>{SendCharge::scarce_bytes_max});
  EXPECT_FALSE(charge.room());
  connection.waiting = 0;
  EXPECT_TRUE(charge.room());
  EXPECT_EQ(session.drained, 0U);
  sleep(milliseconds(50));
  EXPECT_EQ(charge.mark(), option_bytes);
  EXPECT_EQ(connection.marks.back(), option_bytes);
  EXPECT_EQ(session.drained, 1U);
}

// Others need the memory: the budget asks for what is held now.
TEST_F(BacklogChargeTest, ChargesThatLagAreRenewedBeforeTheBudgetRefuses) {
  commit_until(8 * MiB);
  connection.waiting = 2 * MiB;
  detail::ReceiveAccount other(&budget);
  EXPECT_TRUE(other.acquire(5 * MiB));
  EXPECT_EQ(account.used(), 2 * MiB);
}

TEST_F(BacklogChargeTest, AChangedOptionAppliesAtOnce) {
  connection.waiting = 2 * KiB;
  charge.change_max(KiB);
  EXPECT_EQ(charge.mark(), KiB);
  EXPECT_EQ(session.drained, 0U) << "more waits than the mark";
  charge.change_max(4 * KiB);
  EXPECT_EQ(session.drained, 1U);
  charge.change_max(4 * KiB);
  EXPECT_EQ(session.drained, 1U);
  EXPECT_EQ(connection.marks, (std::vector<std::size_t>{KiB, 4 * KiB}));
}

TEST_F(BacklogChargeTest, NothingIsChargedAfterTheEnd) {
  commit_until(9 * MiB);
  charge.end();
  EXPECT_EQ(account.used(), 0U);
  connection.marks.clear();
  commit_until(9 * MiB);
  sleep(milliseconds(50));
  EXPECT_EQ(account.used(), 0U);
  EXPECT_TRUE(connection.marks.empty());
  detail::ReceiveAccount other(&budget);
  EXPECT_TRUE(other.acquire(8 * MiB));
  EXPECT_FALSE(other.acquire(8 * MiB)) << "the budget asks nobody who has ended";
}

// The connection breaks while it sends.
TEST_F(BacklogChargeTest, AConnectionThatEndsDuringAFlushIsNotCharged) {
  connection.on_flush = [this] { charge.end(); };
  commit_until(9 * MiB);
  EXPECT_EQ(connection.flushes, 1U);
  EXPECT_EQ(account.used(), 0U);
  EXPECT_TRUE(connection.marks.empty());
}

TEST_F(BacklogChargeTest, WithoutABudgetNothingIsCharged) {
  detail::ReceiveAccount unbounded(nullptr);
  BacklogCharge free(loop, connection, session, {.account = unbounded, .total = &total}, option_bytes);
  connection.waiting = 9 * MiB;
  free.on_commit();
  sleep(milliseconds(50));
  EXPECT_EQ(connection.flushes, 0U);
  EXPECT_EQ(free.mark(), option_bytes);
  EXPECT_EQ(total.get(), 0U);
}

}  // namespace
}  // namespace hawser::rpc
