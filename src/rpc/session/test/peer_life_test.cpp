#include "rpc/session/peer_life.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::rpc {
namespace {

using namespace std::chrono_literals;
using Verdict = PeerLife::Verdict;

constexpr Duration interval = 8s;

struct PeerLifeTest : testing::Test {
  PeerLifeTest() { life.begin(now, interval); }
  // Checks at the time that is due, or `late` after it.
  Verdict check(Duration late = {}) {
    now = life.due() + late;
    return life.check(now, interval, state);
  }

  Time now = Time{} + 1h;
  PeerLife life{now};
  PeerLife::Sample state;
};

TEST_F(PeerLifeTest, ASilentPeerIsAskedAndThenLost) {
  EXPECT_EQ(check(), Verdict::silent);
  EXPECT_EQ(now, Time{} + 1h + interval);
  EXPECT_EQ(check(), Verdict::lost);
  EXPECT_EQ(now, Time{} + 1h + 2 * interval);
  EXPECT_EQ(life.due(), now) << "tells since when the loop did not run";
}

TEST_F(PeerLifeTest, AMessageMovesTheNextCheck) {
  life.on_message(now + 3s);
  EXPECT_EQ(check(), Verdict::alive);
  EXPECT_EQ(life.due(), Time{} + 1h + 3s + interval);
  EXPECT_EQ(check(), Verdict::silent);
  life.on_message(now + 1s);
  EXPECT_EQ(check(), Verdict::alive);
}

TEST_F(PeerLifeTest, ChecksAreAnEighthOfTheIntervalApartAtLeast) {
  life.on_message(now + interval / 100);
  EXPECT_EQ(check(), Verdict::alive);
  EXPECT_EQ(life.due(), now + interval / 8);
}

TEST_F(PeerLifeTest, APartOfALongMessageIsASignOfLife) {
  ++state.arrived;
  EXPECT_EQ(check(), Verdict::alive);
  EXPECT_EQ(life.due(), now + interval);
  EXPECT_EQ(check(), Verdict::silent) << "nothing has come since";
}

// The bytes may be those of the message, and then nothing came for the rest of the interval.
TEST_F(PeerLifeTest, BytesOfAMessageThatCameLaterThanTheLastCheckCountAtItsTime) {
  life.on_message(now + 3s);
  ++state.arrived;
  EXPECT_EQ(check(), Verdict::alive);
  EXPECT_EQ(life.due(), Time{} + 1h + 3s + interval);
}

TEST_F(PeerLifeTest, APeerThatTakesALongBacklogLives) {
  state.backlog = std::size_t{64} << 10;
  EXPECT_EQ(check(), Verdict::silent);
  ++state.sent;
  EXPECT_EQ(check(), Verdict::alive);
  state.backlog = (std::size_t{64} << 10) - 1;
  ++state.sent;
  EXPECT_EQ(check(), Verdict::alive) << "the backlog was long at the last check";
  ++state.sent;
  EXPECT_EQ(check(), Verdict::silent) << "a short backlog may go to a socket that nobody reads";
}

TEST_F(PeerLifeTest, APeerThatTakesNothingIsStuckThoughItSends) {
  state.backlog = 1;
  life.on_message(now + interval);
  EXPECT_EQ(check(), Verdict::alive);
  life.on_message(now + interval);
  EXPECT_EQ(check(), Verdict::stuck);
}

TEST_F(PeerLifeTest, WithoutABacklogNobodyIsStuck) {
  for (int i = 0; i < 5; ++i) {
    life.on_message(now + interval);
    EXPECT_EQ(check(), Verdict::alive);
  }
}

TEST_F(PeerLifeTest, SilenceMeansNothingWhileThisSideDoesNotRead) {
  state.paused = true;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(check(), Verdict::silent);
  state.paused = false;
  EXPECT_EQ(check(), Verdict::lost);
}

TEST_F(PeerLifeTest, TimeInWhichTheLoopDidNotRunDoesNotCount) {
  state.backlog = 1;
  EXPECT_EQ(check(10 * interval), Verdict::silent);
  EXPECT_EQ(life.due(), now + interval) << "the peer has the whole interval for the answer";
  EXPECT_EQ(check(), Verdict::stuck);
}

TEST_F(PeerLifeTest, AMessageAfterAPauseOfTheLoopIsNotInTheFuture) {
  life.on_message(now + 10 * interval);
  EXPECT_EQ(check(9 * interval), Verdict::alive);
  EXPECT_EQ(life.due(), now + interval);
}

TEST_F(PeerLifeTest, ANewBeginForgetsTheSilence) {
  state.backlog = 1;
  EXPECT_EQ(check(), Verdict::silent);
  life.begin(now, 2 * interval);
  EXPECT_EQ(life.due(), now + 2 * interval);
  now = life.due();
  EXPECT_EQ(life.check(now, 2 * interval, state), Verdict::silent);
}

}  // namespace
}  // namespace hawser::rpc
