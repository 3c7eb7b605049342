#include "security/tls/state.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

namespace hawser::security::tls {
namespace {

using Phase = TlsState::Phase;

constexpr std::array phases = {Phase::shaking,        Phase::stepping,   Phase::open,
                               Phase::half_closed,    Phase::refused,    Phase::ended_shaking,
                               Phase::ended_stepping, Phase::ended_open, Phase::ended_refused};

// The whole table, so that a change of it is seen here.
TEST(TlsState, AllowsTheseTransitionsAlone) {
  const std::map<Phase, std::set<Phase>> expected = {
      {Phase::shaking, {Phase::stepping, Phase::open, Phase::refused, Phase::ended_shaking}},
      {Phase::stepping, {Phase::shaking, Phase::ended_stepping}},
      {Phase::open, {Phase::half_closed, Phase::ended_open}},
      {Phase::half_closed, {Phase::ended_open}},
      {Phase::refused, {Phase::ended_refused}},
      {Phase::ended_stepping, {Phase::ended_shaking}},
  };
  for (const Phase from : phases) {
    for (const Phase to : phases) {
      const auto known = expected.find(from);
      EXPECT_EQ(TlsState::allows(from, to), known != expected.end() && known->second.contains(to))
          << static_cast<int>(from) << " to " << static_cast<int>(to);
    }
  }
}

TEST(TlsState, AStepThatOutlivesTheStreamIsStillWaitedFor) {
  TlsState state;
  state.begin_step();
  state.end();
  EXPECT_TRUE(state.ended());
  EXPECT_TRUE(state.stepping()) << "the other thread still uses the session";
  state.end_step();
  EXPECT_TRUE(state.ended());
  EXPECT_FALSE(state.stepping());
  EXPECT_FALSE(state.opened());
}

TEST(TlsState, AnOpenStreamStaysOpenedAfterItsEnd) {
  TlsState state;
  EXPECT_FALSE(state.opened());
  state.open();
  EXPECT_TRUE(state.live());
  state.half_close();
  EXPECT_TRUE(state.live() && state.half_closed());
  state.end();
  EXPECT_TRUE(state.opened() && state.ended());
  EXPECT_FALSE(state.live() || state.half_closed());
}

TEST(TlsState, TheEndOfTheDirectionIsSentOnceAndNotDuringTheHandshake) {
  TlsState state;
  state.want_finish();
  EXPECT_FALSE(state.send_finish()) << "the handshake is not complete";
  state.open();
  EXPECT_TRUE(state.send_finish());
  EXPECT_TRUE(state.finish_wanted() && state.finish_sent());
  state.want_finish();
  EXPECT_FALSE(state.send_finish()) << "a second time";
}

TEST(TlsState, ARefusedClientIsNotifiedOfTheEndAlsoAfterIt) {
  TlsState state;
  EXPECT_FALSE(state.send_finish()) << "nobody has called finish()";
  state.refuse();
  EXPECT_TRUE(state.finish_wanted());
  state.end();
  EXPECT_TRUE(state.ended());
  EXPECT_TRUE(state.send_finish()) << "the alert was still being sent";
}

}  // namespace
}  // namespace hawser::security::tls
