#include "pipe/pause_reasons.h"

#include <gtest/gtest.h>

namespace hawser::pipe {
namespace {

TEST(PauseReasons, AConnectionGoesOnWhenNoReasonIsLeft) {
  PauseReasons reasons;
  EXPECT_FALSE(reasons.any());
  reasons.add(PauseReason::hold);
  reasons.add(PauseReason::turn);
  reasons.add(PauseReason::turn);
  EXPECT_TRUE(reasons.has_other_than(PauseReason::hold));
  reasons.remove(PauseReason::turn);
  EXPECT_TRUE(reasons.any());
  EXPECT_TRUE(reasons.has(PauseReason::hold));
  EXPECT_FALSE(reasons.has_other_than(PauseReason::hold));
  reasons.remove(PauseReason::hold);
  EXPECT_FALSE(reasons.any());
}

TEST(PauseReasons, ThePeerEndsAPauseForTheBacklogAlone) {
  PauseReasons reasons;
  EXPECT_EQ(reasons.pause(), ReadPause::none);
  reasons.add(PauseReason::backlog);
  EXPECT_EQ(reasons.pause(), ReadPause::for_peer);
  for (const PauseReason own : {PauseReason::protocol, PauseReason::hold, PauseReason::turn, PauseReason::memory}) {
    reasons.add(own);
    EXPECT_EQ(reasons.pause(), ReadPause::own);
    reasons.remove(own);
  }
  EXPECT_EQ(reasons.pause(), ReadPause::for_peer);
}

}  // namespace
}  // namespace hawser::pipe
