#include "transport/sim/rdma/sim_send_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "transport/sim/rdma/sim_refusals.h"

namespace hawser::transport {
namespace {

struct SimSendQueueTest : testing::Test {
  void push(std::uint64_t id, bool signalled) { queue.push({.id = id, .signalled = signalled}); }
  void finish(std::uint64_t sequence) {
    queue.finish(sequence, [this](const SimWork& work) { completed.push_back(work.id); });
  }

  using Ids = std::vector<std::uint64_t>;
  SimSendQueue queue;
  Ids completed;
};

TEST_F(SimSendQueueTest, RequestsCompleteInTheOrderInWhichTheyWerePosted) {
  for (const std::uint64_t id : {10, 11, 12}) push(id, true);
  finish(2);
  finish(1);
  EXPECT_EQ(completed, Ids{});
  EXPECT_TRUE(queue.has(2)) << "it is done, and has not completed";
  finish(0);
  EXPECT_EQ(completed, (Ids{10, 11, 12}));
  EXPECT_FALSE(queue.has(0));
  EXPECT_FALSE(queue.has(3));
  EXPECT_EQ(queue.next(), 3U);
}

TEST_F(SimSendQueueTest, ASlotWithoutACompletionIsFreeWithTheNextCompletion) {
  push(1, false);
  push(2, false);
  push(3, true);
  finish(0);
  finish(1);
  EXPECT_EQ(queue.used(), 3U) << "a driver does not know yet that these slots are free";
  EXPECT_EQ(completed, Ids{});
  finish(2);
  EXPECT_EQ(queue.used(), 0U);
  EXPECT_EQ(completed, Ids{3});
}

TEST_F(SimSendQueueTest, ClearRemovesTheOldestFirstAndKeepsTheNumbers) {
  push(1, false);
  push(2, true);
  push(3, false);
  finish(0);
  Ids removed;
  queue.clear([&](const SimWork& work) { removed.push_back(work.id); });
  EXPECT_EQ(removed, (Ids{2, 3}));
  EXPECT_EQ(queue.used(), 0U);
  EXPECT_EQ(queue.next(), 3U);
  push(4, true);
  EXPECT_EQ(queue.at(3).id, 4U);
}

TEST(SimRefusals, RetriesAreCountedForEachMessage) {
  SimRefusals refusals;
  EXPECT_TRUE(refusals.refuse(5, 2));
  EXPECT_EQ(refusals.resume(), 5U);
  EXPECT_TRUE(refusals.refuse(5, 2));
  EXPECT_EQ(refusals.resume(), 5U);
  EXPECT_TRUE(refusals.refuse(6, 2)) << "5 has arrived: 6 has all of its retries";
  EXPECT_EQ(refusals.resume(), 6U);
  EXPECT_TRUE(refusals.refuse(6, 2));
  refusals.resume();
  EXPECT_FALSE(refusals.refuse(6, 2));
  EXPECT_FALSE(SimRefusals().refuse(0, 0));
}

TEST(SimRefusals, SevenRetriesAreEndless) {
  SimRefusals refusals;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(refusals.refuse(1, SimRefusals::endless_retries)) << i;
    refusals.resume();
  }
}

TEST(SimRefusals, EachWaitBeginsAnEpoch) {
  SimRefusals refusals;
  EXPECT_FALSE(refusals.waiting());
  const std::uint32_t before = refusals.epoch();
  EXPECT_TRUE(refusals.refuse(0, 1));
  EXPECT_TRUE(refusals.waiting());
  EXPECT_EQ(refusals.epoch(), before + 1);
  refusals.resume();
  EXPECT_FALSE(refusals.waiting());
  EXPECT_EQ(refusals.epoch(), before + 1);
  EXPECT_FALSE(refusals.refuse(0, 1));
  EXPECT_EQ(refusals.epoch(), before + 1) << "the queue pair breaks: there is no further attempt";
}

}  // namespace
}  // namespace hawser::transport
