#include "transport/rdma/connection/state.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace hawser::transport::rdma {
namespace {

using Phase = RdmaState::Phase;

constexpr std::array in_order = {Phase::unreserved, Phase::reserved, Phase::made, Phase::connecting,
                                 Phase::connected,  Phase::closing,  Phase::ended};

// Each phase leads to the next one and to the end, and to no other.
TEST(RdmaState, GoesForwardStepByStepOrEnds) {
  for (std::size_t from = 0; from < in_order.size(); ++from) {
    for (std::size_t to = 0; to < in_order.size(); ++to) {
      const bool next = to == from + 1;
      const bool end = in_order[to] == Phase::ended && in_order[from] != Phase::ended;
      EXPECT_EQ(RdmaState::allows(in_order[from], in_order[to]), next || end) << from << " to " << to;
    }
  }
}

TEST(RdmaState, HoldsAPlaceFromItsReservationToItsEnd) {
  RdmaState state;
  EXPECT_FALSE(state.reserved());
  for (const Phase next : {Phase::reserved, Phase::made, Phase::connecting, Phase::connected, Phase::closing}) {
    state.enter(next);
    EXPECT_TRUE(state.reserved());
    EXPECT_FALSE(state.ended());
  }
  state.enter(Phase::ended);
  EXPECT_FALSE(state.reserved());
  EXPECT_TRUE(state.ended());
}

}  // namespace
}  // namespace hawser::transport::rdma
