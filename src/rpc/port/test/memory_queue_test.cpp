#include "rpc/port/memory_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "exec/sim_poller.h"

namespace hawser::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A connection without memory. `order` has the names of those that have gone on.
class QueuedWaiter final : public MemoryWaiter {
 public:
  QueuedWaiter(MemoryQueue& queue, std::string name, std::string& order)
      : queue_(queue), name_(std::move(name)), order_(order) {}
  ~QueuedWaiter() { queue_.remove(*this); }

  bool try_to_receive(bool beyond) noexcept override {
    if (!(beyond ? may_exceed : has_memory)) return false;
    order_ += name_;
    if (then) then();
    return true;
  }
  void end_late() noexcept override {
    order_ += "-" + name_;
    queue_.remove(*this);
  }

  bool has_memory = false;
  bool may_exceed = true;
  std::function<void()> then;

 private:
  MemoryQueue& queue_;
  const std::string name_;
  std::string& order_;
};

class MemoryQueueTest : public testing::Test {
 protected:
  void pass(Duration time) { loop.run(sleep(loop, time)); }
  // Long enough for several looks.
  void pass() { pass(10 * MemoryQueue::interval); }

  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  MemoryQueue queue{loop};
  std::string order;
  QueuedWaiter a{queue, "a", order};
  QueuedWaiter b{queue, "b", order};
  QueuedWaiter c{queue, "c", order};

 private:
  static Task<void> sleep(Loop& loop, Duration time) { co_await loop.sleep(time); }
};

TEST_F(MemoryQueueTest, OneAtATimeExceedsInOrder) {
  for (QueuedWaiter* waiter : {&a, &b, &c}) EXPECT_TRUE(queue.add(*waiter));
  EXPECT_EQ(order, "");
  pass();
  EXPECT_EQ(order, "a");
  EXPECT_TRUE(queue.may_exceed(a));
  queue.passed(b);
  EXPECT_TRUE(queue.may_exceed(a));
  c.has_memory = true;
  pass();
  EXPECT_EQ(order, "ac");
  queue.passed(a);
  EXPECT_FALSE(queue.may_exceed(a));
  pass();
  EXPECT_EQ(order, "acb");
}

// Nobody else waits, so that no look follows.
TEST_F(MemoryQueueTest, WhoHasPassedDoesNotExceedLater) {
  queue.add(a);
  pass();
  queue.passed(a);
  queue.add(b);
  pass();
  EXPECT_EQ(order, "ab");
  EXPECT_FALSE(queue.may_exceed(a));
}

TEST_F(MemoryQueueTest, WhoWaitsForSomethingElseDoesNotExceed) {
  a.may_exceed = false;
  queue.add(a);
  queue.add(b);
  pass();
  EXPECT_EQ(order, "b");
  queue.passed(b);
  a.may_exceed = true;
  pass();
  EXPECT_EQ(order, "ba");
}

// The others are not to blame.
TEST_F(MemoryQueueTest, TheOneThatIsLateEnds) {
  queue.add(a);
  pass(2 * MemoryQueue::patience);
  queue.add(b);
  queue.add(c);
  pass(MemoryQueue::patience - seconds(1));
  EXPECT_EQ(order, "a") << "the others have waited for less than the patience";
  pass(seconds(1) + milliseconds(20));
  EXPECT_EQ(order, "a-ab");
  pass(MemoryQueue::patience);
  EXPECT_EQ(order, "a-ab-bc");
}

// While the queue looks, one goes on, waits again and ends others.
TEST_F(MemoryQueueTest, ChangesWhileItLooks) {
  a.has_memory = true;
  a.then = [&] {
    queue.remove(b);
    queue.add(a);
    a.has_memory = false;
  };
  for (QueuedWaiter* waiter : {&a, &b, &c}) queue.add(*waiter);
  pass();
  EXPECT_EQ(order, "ac");
  queue.passed(c);
  a.then = nullptr;
  pass();
  EXPECT_EQ(order, "aca");
}

TEST_F(MemoryQueueTest, OnlyThoseThatWaitCount) {
  std::deque<QueuedWaiter> many;
  for (std::size_t i = 0; i < MemoryQueue::waiting_max; ++i) {
    EXPECT_TRUE(queue.add(many.emplace_back(queue, "m", order))) << i;
  }
  EXPECT_FALSE(queue.add(a));
  queue.remove(many[7]);
  EXPECT_TRUE(queue.add(a));
  EXPECT_FALSE(queue.add(b));
  // The place of the one that goes on is free while the queue looks.
  many[0].then = [&] { EXPECT_TRUE(queue.add(b)); };
  pass();
  EXPECT_EQ(order, "m");
}

}  // namespace
}  // namespace hawser::rpc
