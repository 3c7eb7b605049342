#include <gtest/gtest.h>

#include <string>

#include "tests/rdma/child.h"
#include "tests/rdma/device.h"

// The cases lie in rdma/. This one shows that the counters which they check are really read.
namespace hawser::rdma_tests {

TEST(Child, SpeaksHearsAndIsKilled) {
  Child child([](const Child::Say& say, const Child::Hear& hear) {
    say("heard " + hear());
    hear();
  });
  child.say("one");
  EXPECT_EQ(child.hear(), "heard one");
  child.kill();
  EXPECT_EQ(child.hear(), "");
}

TEST_F(Device, IsCounted) {
  const auto counts = resources();
  EXPECT_TRUE(counts.contains("qp"));
  EXPECT_TRUE(counts.contains("mr"));
}

}  // namespace hawser::rdma_tests
