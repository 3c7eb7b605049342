#include "pipe/stream_state.h"

#include <gtest/gtest.h>

namespace hawser::pipe {
namespace {

using Phase = StreamState::Phase;

TEST(StreamState, ThisSideEndsItsDirectionFirst) {
  StreamState state;
  EXPECT_FALSE(state.finishing());
  state.finish();
  EXPECT_TRUE(state.finishing());
  EXPECT_FALSE(state.finished());
  state.finish_sent();
  EXPECT_TRUE(state.finishing());
  EXPECT_TRUE(state.finished());
  EXPECT_FALSE(state.peer_ended());
  state.end_peer();
  EXPECT_EQ(state.phase(), Phase::finished_alone);
  EXPECT_TRUE(state.finished());
  EXPECT_TRUE(state.peer_ended());
  state.close();
  EXPECT_TRUE(state.closed());
  EXPECT_FALSE(state.finishing() || state.finished() || state.peer_ended());
}

TEST(StreamState, ThePeerEndsItsDirectionFirst) {
  StreamState state;
  state.end_peer();
  EXPECT_EQ(state.phase(), Phase::peer_ended);
  EXPECT_FALSE(state.finishing());
  state.finish();
  EXPECT_EQ(state.phase(), Phase::finishing_alone);
  EXPECT_TRUE(state.finishing());
  state.finish_sent();
  EXPECT_EQ(state.phase(), Phase::finished_alone);
}

TEST(StreamState, ThePeerMayEndItsDirectionWhileTheRestIsSent) {
  StreamState state;
  state.finish();
  state.end_peer();
  EXPECT_EQ(state.phase(), Phase::finishing_alone);
}

TEST(StreamState, ADirectionEndsOnceAndNothingFollowsTheEnd) {
  EXPECT_FALSE(StreamState::allows(Phase::peer_ended, Phase::peer_ended));
  EXPECT_FALSE(StreamState::allows(Phase::finishing, Phase::finishing));
  EXPECT_FALSE(StreamState::allows(Phase::open, Phase::finished)) << "finish() comes before";
  EXPECT_FALSE(StreamState::allows(Phase::finished, Phase::finishing));
  for (unsigned to = 0; to <= static_cast<unsigned>(Phase::closed); ++to) {
    EXPECT_FALSE(StreamState::allows(Phase::closed, static_cast<Phase>(to))) << to;
    if (to != static_cast<unsigned>(Phase::closed)) {
      EXPECT_TRUE(StreamState::allows(static_cast<Phase>(to), Phase::closed)) << to;
    }
  }
}

}  // namespace
}  // namespace hawser::pipe
