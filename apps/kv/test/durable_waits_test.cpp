#include "kv/log/durable_waits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hawser::kv {
namespace {

struct DurableWaitsTest : testing::Test {
  std::uint64_t add(std::string name) {
    return waits.add([this, name = std::move(name)](const std::string* error) {
      notified.push_back(error == nullptr ? name : name + ": " + *error);
    });
  }
  DurableWaits waits;
  std::vector<std::string> notified;
};

TEST_F(DurableWaitsTest, EndInTheOrderOfTheirPositions) {
  EXPECT_TRUE(waits.all_durable());
  waits.logged(10);
  EXPECT_FALSE(waits.all_durable());
  EXPECT_EQ(add("a"), 1U);
  EXPECT_EQ(add("b"), 2U);
  waits.logged(5);
  add("c");
  EXPECT_EQ(waits.count(), 3U);
  waits.set_durable(9);
  waits.notify("");
  EXPECT_TRUE(notified.empty());
  waits.set_durable(10);
  waits.notify("");
  EXPECT_EQ(notified, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(waits.count(), 1U);
  waits.set_all_durable();
  EXPECT_TRUE(waits.all_durable());
  waits.notify("");
  EXPECT_EQ(notified.back(), "c");
  EXPECT_EQ(waits.count(), 0U);
}

TEST_F(DurableWaitsTest, FailOnlyIfTheirBytesAreNotDurable) {
  waits.logged(1);
  add("a");
  waits.logged(1);
  add("b");
  waits.set_durable(1);
  waits.notify("the disk is full");
  EXPECT_EQ(notified, (std::vector<std::string>{"a", "b: the disk is full"}));
}

TEST_F(DurableWaitsTest, AreForgotten) {
  waits.logged(1);
  const std::uint64_t first = add("a");
  add("b");
  waits.remove(first);
  waits.remove(first);
  EXPECT_EQ(waits.count(), 1U);
  waits.set_all_durable();
  waits.notify("");
  EXPECT_EQ(notified, std::vector<std::string>{"b"});
}

TEST_F(DurableWaitsTest, AddAndRemoveOthersWhenTheyEnd) {
  waits.logged(1);
  std::uint64_t second = 0;
  waits.add([&](const std::string*) {
    waits.remove(second);
    waits.logged(1);
    add("later");
  });
  second = add("removed");
  waits.set_durable(1);
  waits.notify("");
  EXPECT_TRUE(notified.empty());
  EXPECT_EQ(waits.count(), 1U);
  waits.set_all_durable();
  waits.notify("");
  EXPECT_EQ(notified, std::vector<std::string>{"later"});
}

}  // namespace
}  // namespace hawser::kv
