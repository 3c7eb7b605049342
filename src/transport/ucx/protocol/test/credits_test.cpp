#include "transport/ucx/protocol/credits.h"

#include <gtest/gtest.h>

namespace hawser::transport::ucx {
namespace {

constexpr std::size_t window = 1000;

TEST(UcxCredits, ASenderStopsWhenThePeersWindowIsUsedUp) {
  UcxCredits credits;
  EXPECT_TRUE(credits.may_send(window));
  credits.send(999);
  EXPECT_TRUE(credits.may_send(window)) << "the last packet may pass the window";
  credits.send(500);
  EXPECT_FALSE(credits.may_send(window));
  EXPECT_TRUE(credits.grant(500));
  EXPECT_TRUE(credits.may_send(window));
}

TEST(UcxCredits, APeerCannotHaveTakenMoreThanItWasSent) {
  UcxCredits credits;
  credits.send(100);
  EXPECT_FALSE(credits.grant(101));
  EXPECT_TRUE(credits.grant(100));
}

TEST(UcxCredits, GrantsMayOvertakeEachOther) {
  UcxCredits credits;
  credits.send(1500);
  EXPECT_TRUE(credits.grant(1200));
  EXPECT_TRUE(credits.grant(300)) << "an older one says less";
  EXPECT_TRUE(credits.may_send(window)) << "the newer one counts";
}

TEST(UcxCredits, APeerThatSendsBeyondItsWindowIsRecognized) {
  UcxCredits credits;
  EXPECT_TRUE(credits.receive(999, window));
  EXPECT_TRUE(credits.receive(999, window));
  EXPECT_FALSE(credits.receive(1, window));
  credits.take(1998);
  EXPECT_FALSE(credits.receive(1, window)) << "the peer does not know yet that it has room";
  EXPECT_EQ(credits.announce(), 1998U);
  EXPECT_TRUE(credits.receive(1, window));
}

TEST(UcxCredits, AQuarterOfTheWindowIsAnnounced) {
  UcxCredits credits;
  EXPECT_TRUE(credits.receive(900, window));
  credits.take(249);
  EXPECT_FALSE(credits.announcement_due(window));
  credits.take(1);
  EXPECT_TRUE(credits.announcement_due(window));
  EXPECT_EQ(credits.announce(), 250U);
  EXPECT_FALSE(credits.announcement_due(window));
}

}  // namespace
}  // namespace hawser::transport::ucx
