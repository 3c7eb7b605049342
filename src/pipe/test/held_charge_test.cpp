#include "pipe/held_charge.h"

#include <gtest/gtest.h>

namespace hawser::pipe {
namespace {

struct HeldChargeTest : testing::Test {
  static constexpr std::size_t budget_bytes = 100'000;
  detail::ReceiveBudget budget{budget_bytes, budget_bytes};
  detail::ReceiveAccount account{&budget};
};

TEST_F(HeldChargeTest, FollowsWhatIsHeld) {
  HeldCharge charge(account);
  EXPECT_TRUE(charge.set(60'000));
  EXPECT_EQ(account.used(), 60'000U);
  EXPECT_TRUE(charge.set(70'000));
  EXPECT_EQ(account.used(), 70'000U);
  EXPECT_TRUE(charge.set(10));
  EXPECT_EQ(account.used(), 10U);
  EXPECT_EQ(charge.bytes(), 10U);
}

TEST_F(HeldChargeTest, ARefusalChangesNothing) {
  HeldCharge charge(account);
  ASSERT_TRUE(charge.set(60'000));
  EXPECT_FALSE(charge.set(budget_bytes + 1));
  EXPECT_EQ(charge.bytes(), 60'000U);
  EXPECT_EQ(account.used(), 60'000U);
}

TEST_F(HeldChargeTest, MemoryThatIsHeldAlreadyIsNotRefused) {
  HeldCharge charge(account);
  charge.set_always(budget_bytes + 1);
  EXPECT_EQ(account.used(), budget_bytes + 1);
  EXPECT_TRUE(charge.set(budget_bytes)) << "a decrease is never refused";
  charge.set_always(5);
  EXPECT_EQ(account.used(), 5U);
}

TEST_F(HeldChargeTest, EndsWithItsOwner) {
  {
    HeldCharge charge(account);
    ASSERT_TRUE(charge.set(60'000));
    HeldCharge other(account);
    ASSERT_TRUE(other.set(1000));
  }
  EXPECT_EQ(account.used(), 0U);
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace hawser::pipe
