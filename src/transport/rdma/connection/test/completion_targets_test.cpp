#include "transport/rdma/connection/completion_targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hawser::transport::rdma {
namespace {

struct SilentTarget final : CompletionTarget {
  void on_completion(const Completion&) override {}
  void on_event(const DeviceEvent&) override {}
  void on_posted(const ReceiveChunk&) override {}
};

TEST(CompletionTargets, AreFoundByTheirNumbers) {
  CompletionTargets targets;
  SilentTarget one;
  SilentTarget two;
  EXPECT_EQ(targets.find(1), nullptr);
  targets.set(1, one);
  targets.set(2, two);
  EXPECT_EQ(targets.find(1), &one);
  EXPECT_EQ(targets.find(1), &one);
  EXPECT_EQ(targets.find(2), &two);
  EXPECT_EQ(targets.find(3), nullptr);
  std::vector<std::uint32_t> numbers = targets.numbers();
  std::ranges::sort(numbers);
  EXPECT_EQ(numbers, (std::vector<std::uint32_t>{1, 2}));
}

// The one that was found last is remembered, and must not be found when it is gone.
TEST(CompletionTargets, ATargetThatWasReplacedOrRemovedIsNotFoundAgain) {
  CompletionTargets targets;
  SilentTarget connection;
  SilentTarget draining;
  targets.set(1, connection);
  EXPECT_EQ(targets.find(1), &connection);
  targets.replace(1, draining);
  EXPECT_EQ(targets.find(1), &draining);
  targets.remove(1);
  EXPECT_EQ(targets.find(1), nullptr);
  targets.replace(1, draining);
  EXPECT_EQ(targets.find(1), nullptr) << "it had no target";
  EXPECT_EQ(targets.size(), 0U);
  // The number is used again.
  targets.set(1, draining);
  EXPECT_EQ(targets.find(1), &draining);
  targets.set(1, connection);
  EXPECT_EQ(targets.find(1), &connection);
}

}  // namespace
}  // namespace hawser::transport::rdma
