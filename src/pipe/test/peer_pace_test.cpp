#include "pipe/peer_pace.h"

#include <gtest/gtest.h>

namespace hawser::pipe {
namespace {

using Behind = PeerPace::Behind;

constexpr std::uint64_t window_bytes = 1000;
constexpr std::size_t budget_bytes = 1 << 20;

struct PeerPaceTest : testing::Test {
  PeerPaceTest() { account.acquire_always(detail::ReceiveAccount::reserve_bytes); }
  ~PeerPaceTest() override { account.release(account.used()); }
  Behind check() { return pace.check(state, window_bytes, account); }
  void use_half_of_the_budget() { account.acquire_always(budget_bytes / 2); }

  detail::ReceiveBudget budget{budget_bytes, budget_bytes};
  detail::ReceiveAccount account{&budget};
  PeerPace pace;
  PeerPace::Sample state;
};

TEST_F(PeerPaceTest, AMessageThatHasBegunMustAdvance) {
  state.receiving = true;
  EXPECT_EQ(check(), Behind::no) << "it began within the window";
  state.arrived += window_bytes;
  EXPECT_EQ(check(), Behind::no);
  state.arrived += window_bytes - 1;
  EXPECT_EQ(check(), Behind::sending);
}

TEST_F(PeerPaceTest, AnotherMessageHasAWindowOfItsOwn) {
  state.receiving = true;
  ASSERT_EQ(check(), Behind::no);
  ++state.messages;
  EXPECT_EQ(check(), Behind::no);
  EXPECT_EQ(check(), Behind::sending);
  state.receiving = false;
  EXPECT_EQ(check(), Behind::no) << "nothing is being received";
}

TEST_F(PeerPaceTest, WhileItWaitsForThePeerWhatThePeerTakesCounts) {
  state.receiving = true;
  state.pause = ReadPause::for_peer;
  ASSERT_EQ(check(), Behind::no);
  state.sent += window_bytes;
  EXPECT_EQ(check(), Behind::no);
  state.sent += window_bytes - 1;
  EXPECT_EQ(check(), Behind::sending);
  state.pause = ReadPause::none;
  state.sent += window_bytes;
  EXPECT_EQ(check(), Behind::sending) << "it reads, so only bytes that arrive count";
}

TEST_F(PeerPaceTest, APauseOfThisSideIsNotTheFaultOfThePeer) {
  state.receiving = true;
  ASSERT_EQ(check(), Behind::no);
  state.pause = ReadPause::own;
  EXPECT_EQ(check(), Behind::no);
  state.pause = ReadPause::none;
  EXPECT_EQ(check(), Behind::no) << "the pause ended within this window";
  EXPECT_EQ(check(), Behind::sending);
}

TEST_F(PeerPaceTest, TheBacklogMustBeTakenWhileTheBudgetIsScarce) {
  state.backlog = 2 * window_bytes;
  ASSERT_EQ(check(), Behind::no);
  EXPECT_EQ(check(), Behind::no) << "there is plenty of memory";
  use_half_of_the_budget();
  EXPECT_EQ(check(), Behind::taking);
  state.sent += window_bytes;
  EXPECT_EQ(check(), Behind::no);
  state.backlog = 10;
  state.sent += window_bytes;
  ASSERT_EQ(check(), Behind::no);
  state.sent += 10;
  EXPECT_EQ(check(), Behind::no) << "all of the backlog of the beginning was taken";
  state.sent += 9;
  EXPECT_EQ(check(), Behind::taking);
}

TEST_F(PeerPaceTest, AConnectionThatKeepsLittleMayTakeItsTime) {
  detail::ReceiveAccount other(&budget);
  other.acquire_always(budget_bytes / 2);
  state.backlog = window_bytes;
  ASSERT_EQ(check(), Behind::no);
  EXPECT_EQ(check(), Behind::no);
  account.acquire_always(1);
  EXPECT_EQ(check(), Behind::taking);
}

}  // namespace
}  // namespace hawser::pipe
